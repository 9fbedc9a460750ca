//! Frames in a byte stream, as a program reads or writes them. Pure.
//!
//! [`PlainSplitter`] reads the plain format: each frame follows its [`Head`], as on a leg. Unlike a video container it
//! keeps the frame numbers, so a reader sees which frames were dropped on the way.

use bytes::{Buf as _, BytesMut};
use std::time::Duration;
use thalweg_media::{Frame, FrameClass, InputWarning, TsSplitter};
use thalweg_wire::stream::leg::{FrameHead, HEAD, Head, HeadError, MAX_TRACKS};
use thiserror::Error;

/// Splits bytes into frames.
pub trait Splitter: Send {
    /// Reads the next bytes and adds the frames that they complete.
    ///
    /// # Errors
    /// When the bytes are malformed; the splitter must not be used after that.
    fn push(&mut self, bytes: &[u8], into: &mut Vec<Frame>) -> Result<(), SplitError>;

    /// Ends the input: adds the last complete frames and returns how many bytes were left over.
    fn end(&mut self, into: &mut Vec<Frame>) -> usize;

    /// Returns the warnings since the last call.
    fn take_warnings(&mut self) -> Vec<InputWarning> {
        Vec::new()
    }
}

/// The input is not a valid stream of frames.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SplitError {
    /// The head of a frame is malformed.
    #[error("at byte {at} of the input: {why}")]
    Head {
        /// The offset in bytes.
        at: u64,
        /// The cause.
        why: HeadError,
    },
    /// A message, which is valid only on legs.
    #[error("at byte {0} of the input: a message where a frame is expected")]
    Message(u64),
    /// The track number is out of range.
    #[error(
        "at byte {at} of the input: track {track}, but a stream has at most {MAX_TRACKS} tracks"
    )]
    Track {
        /// The offset in bytes.
        at: u64,
        /// The track number.
        track: u8,
    },
}

/// The splitter of the plain format.
#[derive(Debug, Default)]
pub struct PlainSplitter {
    waiting: BytesMut,
    at: u64,
}

impl PlainSplitter {
    /// Encodes the frame with the head under which it was received.
    pub fn encode(head: FrameHead, frame: &Frame) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + frame.bytes.len());
        out.extend_from_slice(&Head::Frame(head).encode());
        out.extend_from_slice(&frame.bytes);
        out
    }

    fn next(&mut self) -> Result<Option<Frame>, SplitError> {
        let Some(head) = self.waiting.first_chunk() else { return Ok(None) };
        let at = self.at;
        let head = match Head::decode(head).map_err(|why| SplitError::Head { at, why })? {
            Head::Frame(head) => head,
            Head::Message(_) => return Err(SplitError::Message(at)),
        };
        if usize::from(head.track) >= MAX_TRACKS {
            return Err(SplitError::Track { at, track: head.track });
        }
        let length = head.length as usize;
        if self.waiting.len() < HEAD + length {
            return Ok(None);
        }
        self.waiting.advance(HEAD);
        self.at += (HEAD + length) as u64;
        let bytes = self.waiting.split_to(length).freeze();
        // `decode` has refused every other class.
        let Some(class) = FrameClass::from_number(head.class) else { return Ok(None) };
        let time = Duration::from_micros(head.time_us);
        Ok(Some(Frame { track: head.track, class, time, bytes }))
    }
}

impl Splitter for TsSplitter {
    fn push(&mut self, bytes: &[u8], into: &mut Vec<Frame>) -> Result<(), SplitError> {
        TsSplitter::push(self, bytes, into);
        Ok(())
    }

    /// Returns 0: incomplete units are reported as warnings.
    fn end(&mut self, into: &mut Vec<Frame>) -> usize {
        TsSplitter::end(self, into);
        0
    }

    fn take_warnings(&mut self) -> Vec<InputWarning> {
        TsSplitter::take_warnings(self)
    }
}

impl Splitter for PlainSplitter {
    fn push(&mut self, bytes: &[u8], into: &mut Vec<Frame>) -> Result<(), SplitError> {
        self.waiting.extend_from_slice(bytes);
        while let Some(frame) = self.next()? {
            into.push(frame);
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Vec<Frame>) -> usize {
        std::mem::take(&mut self.waiting).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn written(count: u64) -> Vec<u8> {
        let frame = |n: u64| {
            let bytes = Bytes::from(vec![n as u8; n as usize]);
            let frame =
                Frame { track: 1, class: FrameClass::Key, time: Duration::from_micros(n), bytes };
            let head = FrameHead {
                sequence: n,
                track: 1,
                class: 2,
                time_us: n,
                age_us: 0,
                sent_us: 0,
                length: n as u32,
            };
            PlainSplitter::encode(head, &frame)
        };
        (0..count).flat_map(frame).collect()
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_frames(cuts in prop::collection::vec(1_usize..200, 1..60)) {
            let (bytes, mut frames, mut at) = (written(40), PlainSplitter::default(), 0);
            let mut out = Vec::new();
            for cut in cuts.into_iter().cycle() {
                let end = (at + cut).min(bytes.len());
                frames.push(&bytes[at..end], &mut out).unwrap();
                at = end;
                if at == bytes.len() {
                    break;
                }
            }
            prop_assert_eq!((out.len(), frames.end(&mut Vec::new())), (40, 0));
            for (n, frame) in out.iter().enumerate() {
                prop_assert_eq!(frame.bytes.len(), n);
            }
        }

        #[test]
        fn any_bytes_are_frames_or_an_error(bytes: Vec<u8>) {
            let (mut frames, mut out) = (PlainSplitter::default(), Vec::new());
            _ = frames.push(&bytes, &mut out);
        }
    }

    #[test]
    fn an_error_names_its_offset() {
        let mut bytes = written(3);
        let at = bytes.len() as u64;
        bytes.extend([7; HEAD]);
        let wrong = PlainSplitter::default().push(&bytes, &mut Vec::new());
        assert_eq!(wrong, Err(SplitError::Head { at, why: HeadError::Kind }));
        let mut cut = PlainSplitter::default();
        cut.push(&written(3)[..70], &mut Vec::new()).unwrap();
        assert_eq!(cut.end(&mut Vec::new()), 70 - 31 - 32);
    }
}
