//! Receives a publisher's frames.

use crate::{
    Stream,
    frame_rate::FrameRate,
    io::{Incoming, LegReader, invalid_data},
};
use std::{io, time::Duration};
use thalweg_media::{Frame, FrameClass};
use thalweg_wire::stream::leg::{Ending, MAX_TRACKS, Said};

/// Receives frames until the publisher ends the stream, and hands them to `take`.
///
/// # Errors
/// When the connection fails or the publisher violates the protocol.
pub async fn receive(
    stream: &Stream,
    reader: &mut LegReader,
    take: impl Fn(Frame),
) -> io::Result<Ending> {
    let mut rate = FrameRate::new();
    loop {
        let item = reader.read_item().await?;
        rate.admit(item.frames()).await;
        match item {
            Incoming::Frame(head, bytes) => {
                let class = FrameClass::from_number(head.class)
                    .filter(|_| usize::from(head.track) < MAX_TRACKS);
                let class = class
                    .ok_or_else(|| invalid_data("the class or track of a frame is out of range"))?;
                let time = Duration::from_micros(head.time_us);
                take(Frame { track: head.track, class, time, bytes });
            }
            Incoming::Said(Said::Tracks(tracks)) => stream.set_tracks(tracks),
            Incoming::Said(Said::End(why)) => return Ok(why),
            // Messages of parents only.
            Incoming::Said(Said::Lost(_) | Said::Level(_) | Said::Alive { .. }) => {}
        }
    }
}
