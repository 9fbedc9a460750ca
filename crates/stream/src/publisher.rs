//! Receives a publisher's frames.

use crate::{
    frame_rate::FrameRateLimit,
    io::{IncomingItem, LegReader, invalid_data},
};
use std::{io, time::Duration};
use thalweg_base::timeout::within;
use thalweg_media::{Frame, FrameClass};
use thalweg_wire::stream::leg::{Ending, MAX_LATENCY, MAX_TRACKS, ParentMessage};

/// A publisher that stops within an item for this long is given up. Between two items it may pause.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest time for one item: a frame is useless to everybody after the longest latency.
const ITEM_TIMEOUT: Duration = MAX_LATENCY.saturating_add(PATIENCE);

/// Receives frames until the publisher ends the stream, and hands them to `take`.
///
/// # Errors
/// When the connection fails or the publisher violates the protocol.
pub async fn receive(reader: &mut LegReader, take: impl Fn(Frame)) -> io::Result<Ending> {
    let mut rate = FrameRateLimit::new();
    reader.set_patience(PATIENCE);
    loop {
        reader.wait().await?;
        let item = within(ITEM_TIMEOUT, "frame from the publisher", reader.read_item()).await?;
        rate.admit(item.frames()).await;
        match item {
            IncomingItem::Frame(head, bytes) => {
                let class = FrameClass::from_number(head.class)
                    .filter(|_| usize::from(head.track) < MAX_TRACKS);
                let class = class
                    .ok_or_else(|| invalid_data("the class or track of a frame is out of range"))?;
                let time = Duration::from_micros(head.time_us);
                take(Frame { track: head.track, class, time, bytes });
            }
            IncomingItem::Message(ParentMessage::End(why)) => return Ok(why),
            // Only parents send these messages.
            IncomingItem::Message(
                ParentMessage::Lost(_)
                | ParentMessage::Level(_)
                | ParentMessage::Alive { .. }
                | ParentMessage::Tracks(_),
            ) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Leg;
    use parking_lot::Mutex;
    use std::sync::Arc;
    use thalweg_wire::stream::leg::{FrameHead, Head};
    use tokio::{
        io::{AsyncWriteExt as _, DuplexStream},
        task::JoinHandle,
        time::{Instant, sleep},
    };

    type Taken = Arc<Mutex<Vec<Frame>>>;

    fn start() -> (DuplexStream, Taken, JoinHandle<io::Result<Ending>>) {
        let (here, there) = tokio::io::duplex(1 << 20);
        let taken = Taken::default();
        let frames = Arc::clone(&taken);
        let receiving = tokio::spawn(async move {
            let take = |frame| frames.lock().push(frame);
            receive(&mut Leg::new(here, None).reader, take).await
        });
        (there, taken, receiving)
    }

    fn head(sequence: u64, length: u32) -> Vec<u8> {
        let class = FrameClass::Key as u8;
        let head =
            FrameHead { sequence, track: 0, class, time_us: 0, age_us: 0, sent_us: 0, length };
        Head::Frame(head).encode().to_vec()
    }

    #[tokio::test(start_paused = true)]
    async fn a_publisher_may_pause_between_frames() {
        let (mut publisher, taken, receiving) = start();
        for n in 0..3 {
            publisher.write_all(&[head(n, 2), vec![7; 2]].concat()).await.unwrap();
            sleep(Duration::from_secs(3600)).await;
            assert_eq!(taken.lock().len() as u64, n + 1);
        }
        publisher
            .write_all(&Head::encode_message(&ParentMessage::End(Ending::Over)))
            .await
            .unwrap();
        assert_eq!(receiving.await.unwrap().unwrap(), Ending::Over);
    }

    #[tokio::test(start_paused = true)]
    async fn a_publisher_that_stops_within_a_frame_is_given_up() {
        let (mut publisher, taken, receiving) = start();
        publisher.write_all(&head(0, 40_000)).await.unwrap();
        let began = Instant::now();
        // A frame may come slowly.
        for _ in 0..5 {
            publisher.write_all(&[0; 1000]).await.unwrap();
            sleep(PATIENCE - Duration::from_secs(1)).await;
        }
        assert!(!receiving.is_finished());
        let ended = receiving.await.unwrap().unwrap_err();
        assert_eq!((ended.kind(), taken.lock().len()), (io::ErrorKind::TimedOut, 0));
        assert!(began.elapsed() <= ITEM_TIMEOUT, "{:?}", began.elapsed());
        // Half of a head is no pause between frames.
        let (mut publisher, _, receiving) = start();
        publisher.write_all(&head(0, 1)[..3]).await.unwrap();
        assert_eq!(receiving.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
