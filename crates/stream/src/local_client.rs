//! The programs' side of the local socket.

use crate::io::{IncomingItem, Leg};
use std::{io, path::Path, time::Duration};
use thalweg_media::{Frame, FrameClass};
use thalweg_wire::stream::leg::{
    Accepted, Answer, ChildMessage, Ending, FrameHead, Head, Opening, ParentMessage,
    PublishRequest, Refusal, SubscribeRequest,
};
use thiserror::Error;
use tokio::net::UnixStream;

/// The socket's send buffer: small, so that a program that pauses gets recent frames when it resumes.
const BUFFER: usize = 64 << 10;

/// The longest status report of a node: 64 streams with 512 legs.
const MAX_REPORT: usize = 4 << 20;

/// A leg over a local socket.
pub(crate) fn leg(stream: UnixStream) -> Leg {
    // With the default size more data is queued in the kernel, where it cannot be dropped.
    _ = socket2::SockRef::from(&stream).set_send_buffer_size(BUFFER);
    Leg::new(stream, None)
}

/// Why a request to the local node failed.
#[derive(Debug, Error)]
pub enum StreamError {
    /// No node listens at the socket.
    #[error("no daemon answers at {0}; start it with `thalweg node`")]
    NoDaemon(String),
    /// The local node or the publisher's node refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The stream has ended.
    #[error(transparent)]
    Ended(#[from] Ending),
    /// The connection broke.
    #[error("the connection to the node failed: {0}")]
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

/// The connection of a publishing program.
pub struct Publisher {
    leg: Leg,
    sequence: u64,
}

impl Publisher {
    /// Begins to publish at the node that serves this socket.
    ///
    /// # Errors
    /// [`StreamError`].
    pub async fn begin(socket: &Path, request: PublishRequest) -> Result<Self, StreamError> {
        Self::begin_on_leg(connect(socket).await?, request).await
    }

    /// Begins to publish over this leg.
    pub(crate) async fn begin_on_leg(
        mut leg: Leg,
        request: PublishRequest,
    ) -> Result<Self, StreamError> {
        match leg.open(&Opening::Publish(request)).await? {
            Answer::Accepted(_) => Ok(Self { leg, sequence: 0 }),
            Answer::Refused(why) => Err(why.into()),
            Answer::Status(_) | Answer::Waiting(_) => {
                Err(io::Error::from(io::ErrorKind::InvalidData).into())
            }
        }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// When the connection fails or the node has ended the stream.
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
            self.leg.writer.write_all(&head).await?;
            self.leg.writer.write_all(&frame.bytes).await
        };
        match sent.await {
            Ok(()) => Ok(()),
            Err(why) => Err(self.ended().await.map_or(why.into(), StreamError::Ended)),
        }
    }

    /// Waits until the node ends the stream and returns the reason; `None` if the connection fails first.
    pub async fn ended(&mut self) -> Option<Ending> {
        match self.leg.reader.read_item().await {
            Ok(IncomingItem::Message(ParentMessage::End(why))) => Some(why),
            _ => None,
        }
    }

    /// Ends the stream for all subscribers.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn end(mut self) -> Result<(), StreamError> {
        self.leg.writer.write_all(&Head::encode_message(&ParentMessage::End(Ending::Over))).await?;
        self.leg.writer.close().await;
        Ok(())
    }
}

/// The connection of a subscribing program.
pub struct Subscriber {
    leg: Leg,
    about: Accepted,
}

/// An item received from a stream.
#[derive(Debug)]
pub enum ReceivedItem {
    /// A frame; the head has its number and age.
    Frame(FrameHead, Frame),
    /// A message, including the end of the stream.
    Message(ParentMessage),
}

impl Subscriber {
    /// Requests a stream from the node that serves this socket.
    ///
    /// # Errors
    /// [`StreamError`].
    pub async fn begin(socket: &Path, request: SubscribeRequest) -> Result<Self, StreamError> {
        Self::begin_with_progress(socket, request, |_| ()).await
    }

    /// As [`Self::begin`], and calls `report_wait` about each second with the reason of the delay.
    ///
    /// # Errors
    /// [`StreamError`].
    pub async fn begin_with_progress(
        socket: &Path,
        request: SubscribeRequest,
        report_wait: impl FnMut(&str),
    ) -> Result<Self, StreamError> {
        Self::begin_on_leg(connect(socket).await?, request, report_wait).await
    }

    /// Requests a stream over this leg.
    pub(crate) async fn begin_on_leg(
        mut leg: Leg,
        request: SubscribeRequest,
        mut report_wait: impl FnMut(&str),
    ) -> Result<Self, StreamError> {
        let mut answer = leg.open(&Opening::Subscribe(request)).await?;
        while let Answer::Waiting(why) = &answer {
            report_wait(why);
            answer = leg.read_answer().await?;
        }
        match answer {
            Answer::Accepted(about) => Ok(Self { leg, about }),
            Answer::Refused(why) => Err(why.into()),
            Answer::Status(_) | Answer::Waiting(_) => {
                Err(io::Error::from(io::ErrorKind::InvalidData).into())
            }
        }
    }

    /// The stream's description from the node.
    pub fn about(&self) -> &Accepted {
        &self.about
    }

    /// Receives the next item. Not cancel-safe.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn next(&mut self) -> Result<ReceivedItem, StreamError> {
        Ok(match self.leg.reader.read_item().await? {
            IncomingItem::Message(message) => ReceivedItem::Message(message),
            IncomingItem::Frame(head, bytes) => {
                let class = FrameClass::from_number(head.class);
                let class = class.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
                let time = Duration::from_micros(head.time_us);
                ReceivedItem::Frame(head, Frame { track: head.track, class, time, bytes })
            }
        })
    }

    /// Sends a message to the node.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn send(&mut self, message: &ChildMessage) -> Result<(), StreamError> {
        Ok(self.leg.writer.write_message(message).await?)
    }
}

/// Reads the stream status of the node that serves this socket, as JSON.
///
/// # Errors
/// [`StreamError`].
pub async fn status(socket: &Path) -> Result<serde_json::Value, StreamError> {
    let mut leg = connect(socket).await?;
    match leg.open(&Opening::Status).await? {
        Answer::Status(length) if length as usize <= MAX_REPORT => {
            let bytes = leg.reader.read_bytes(length as usize).await?;
            serde_json::from_slice(&bytes).map_err(|why| io::Error::other(why).into())
        }
        Answer::Refused(why) => Err(why.into()),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn a_waiting_program_is_told_what_it_waits_for() {
        let (here, there) = tokio::io::duplex(1 << 16);
        let node = tokio::spawn(async move {
            let mut leg = Leg::new(there, None);
            assert!(matches!(leg.read_opening().await.unwrap(), Opening::Subscribe(_)));
            for _ in 0..30 {
                sleep(Duration::from_secs(1)).await;
                let waiting = Answer::Waiting("its route is being planned".to_owned());
                leg.send_answer(&waiting).await.unwrap();
            }
            let why = Refusal::Unknown("stage".parse().unwrap());
            leg.send_answer(&Answer::Refused(why)).await.unwrap();
        });
        let request = SubscribeRequest::for_stream("stage".parse().unwrap());
        let mut notices = 0;
        let report_wait = |why: &str| notices += usize::from(why.contains("planned"));
        // Longer than the ten seconds after which a silent node is given up.
        let ended =
            Subscriber::begin_on_leg(Leg::new(here, None), request, report_wait).await.map(|_| ());
        assert!(matches!(ended, Err(StreamError::Refused(Refusal::Unknown(_)))), "{ended:?}");
        assert_eq!(notices, 30);
        node.await.unwrap();
    }
}
