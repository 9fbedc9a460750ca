//! The local socket: programs of this host's owner publish and subscribe by it, in the protocol of legs.

use crate::{
    Frame, Streams,
    io::{Incoming, Leg},
};
use std::{io, path::Path, time::Duration};
use thalweg_base::peer_source::is_owner;
use thalweg_wire::stream::leg::{
    Accepted, Announce, Answer, Ask, Ending, FrameHead, Head, Opening, Refusal, Said, Track, Word,
};
use thiserror::Error;
use tokio::{
    net::{UnixListener, UnixStream},
    time::sleep,
};

/// What lies between a program and its node: a program that pauses gets what is new when it goes on.
const BUFFER: usize = 64 << 10;

/// Without descriptors, wait for some.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest report of a node: 64 streams with 512 legs.
const MAX_REPORT: usize = 4 << 20;

/// Serves the socket for ever; drop the future to end it.
pub async fn serve(streams: Streams, listener: UnixListener) {
    let me = rustix::process::geteuid().as_raw();
    loop {
        match listener.accept().await {
            Ok((stream, _)) if is_owner(&stream, me) => {
                let streams = streams.clone();
                tokio::spawn(async move { streams.serve_local(leg(stream)).await });
            }
            Ok(_) => {}
            Err(_) => sleep(PAUSE).await,
        }
    }
}

fn leg(stream: UnixStream) -> Leg {
    // With the kernel's own size more waits where nothing can be left out any more.
    _ = socket2::SockRef::from(&stream).set_send_buffer_size(BUFFER);
    Leg::new(stream, None)
}

/// The node did not do it.
#[derive(Debug, Error)]
pub enum StreamError {
    /// No node listens.
    #[error("no daemon answers at {0}; start it with `thalweg node`")]
    NoDaemon(String),
    /// It, or the publisher's node, refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The stream has ended.
    #[error(transparent)]
    Ended(#[from] Ending),
    /// The connection broke.
    #[error("the node's socket: {0}")]
    Broken(#[from] io::Error),
}

async fn connect(socket: &Path) -> Result<Leg, StreamError> {
    let none = |why: io::Error| match why.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            StreamError::NoDaemon(socket.display().to_string())
        }
        _ => why.into(),
    };
    Ok(leg(UnixStream::connect(socket).await.map_err(none)?))
}

/// A stream that a program publishes.
pub struct Publisher {
    leg: Leg,
    sequence: u64,
}

impl Publisher {
    /// Begins to publish at the node of this socket.
    ///
    /// # Errors
    /// [`StreamError`].
    pub async fn begin(socket: &Path, announce: Announce) -> Result<Self, StreamError> {
        let mut leg = connect(socket).await?;
        match leg.open(&Opening::Publish(announce)).await? {
            Answer::Accepted(_) => Ok(Self { leg, sequence: 0 }),
            Answer::Refused(why) => Err(why.into()),
            Answer::Status(_) => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
        }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The connection's; why the node has ended the stream.
    pub async fn send(&mut self, frame: &Frame) -> Result<(), StreamError> {
        let head = FrameHead {
            sequence: self.sequence,
            track: frame.track,
            class: frame.class as u8,
            time_us: u64::try_from(frame.time.as_micros()).unwrap_or(u64::MAX),
            age_us: 0,
            sent_us: 0,
            length: u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX),
        };
        self.sequence += 1;
        let head = Head::Frame(head).encode();
        let sent = async {
            self.leg.say.bytes(&head).await?;
            self.leg.say.bytes(&frame.bytes).await
        };
        match sent.await {
            Ok(()) => Ok(()),
            Err(why) => Err(self.ended().await.map_or(why.into(), StreamError::Ended)),
        }
    }

    /// Why the node has ended the stream, if it has said so; waits until it does.
    pub async fn ended(&mut self) -> Option<Ending> {
        match self.leg.hear.incoming().await {
            Ok(Incoming::Said(Said::End(why))) => Some(why),
            _ => None,
        }
    }

    /// Tells of other tracks.
    ///
    /// # Errors
    /// The connection's.
    pub async fn set_tracks(&mut self, tracks: Vec<Track>) -> Result<(), StreamError> {
        Ok(self.leg.say.bytes(&Head::message(&Said::Tracks(tracks))).await?)
    }

    /// Ends the stream for all.
    ///
    /// # Errors
    /// The connection's.
    pub async fn end(mut self) -> Result<(), StreamError> {
        self.leg.say.bytes(&Head::message(&Said::End(Ending::Over))).await?;
        self.leg.say.close().await;
        Ok(())
    }
}

/// A stream that a program takes.
pub struct Subscriber {
    leg: Leg,
    about: Accepted,
}

/// What comes of a stream.
#[derive(Debug)]
pub enum Coming {
    /// A frame; its number and its age are in the head.
    Frame(FrameHead, Frame),
    /// Something else, among it the end.
    Said(Said),
}

impl Subscriber {
    /// Asks the node of this socket for a stream.
    ///
    /// # Errors
    /// [`StreamError`].
    pub async fn begin(socket: &Path, ask: Ask) -> Result<Self, StreamError> {
        let mut leg = connect(socket).await?;
        match leg.open(&Opening::Subscribe(ask)).await? {
            Answer::Accepted(about) => Ok(Self { leg, about }),
            Answer::Refused(why) => Err(why.into()),
            Answer::Status(_) => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
        }
    }

    /// What the node says of the stream.
    pub fn about(&self) -> &Accepted {
        &self.about
    }

    /// What comes next. Not to be dropped half way.
    ///
    /// # Errors
    /// The connection's.
    pub async fn next(&mut self) -> Result<Coming, StreamError> {
        Ok(match self.leg.hear.incoming().await? {
            Incoming::Said(said) => Coming::Said(said),
            Incoming::Frame(head, bytes) => {
                let class = crate::class_of(head.class);
                let class = class.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
                let time = Duration::from_micros(head.time_us);
                Coming::Frame(head, Frame { track: head.track, class, time, bytes })
            }
        })
    }

    /// Says something to the node.
    ///
    /// # Errors
    /// The connection's.
    pub async fn say(&mut self, word: &Word) -> Result<(), StreamError> {
        Ok(self.leg.say.message(word).await?)
    }
}

/// What the node of this socket knows of its streams, as JSON.
///
/// # Errors
/// [`StreamError`].
pub async fn status(socket: &Path) -> Result<serde_json::Value, StreamError> {
    let mut leg = connect(socket).await?;
    match leg.open(&Opening::Status).await? {
        Answer::Status(length) if length as usize <= MAX_REPORT => {
            let bytes = leg.hear.bytes(length as usize).await?;
            serde_json::from_slice(&bytes).map_err(|why| io::Error::other(why).into())
        }
        Answer::Refused(why) => Err(why.into()),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
    }
}
