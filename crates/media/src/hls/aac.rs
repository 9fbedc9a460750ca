//! Splits AAC in ADTS (ISO/IEC 14496-3, 1.A.2.2) into samples.

use mp4_atom::{
    Audio, Codec, Mp4a,
    esds::{DecoderConfig, DecoderSpecific, EsDescriptor, Esds, SLConfig},
};

/// The number of samples of a frame.
pub(crate) const SAMPLES_PER_FRAME: u32 = 1024;

/// The sampling rates by index, Hz.
const SAMPLING_RATES: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8000,
    7350,
];

/// The size of a header without checksum, bytes.
const HEADER: usize = 7;

/// The decoder configuration of AAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AacConfig {
    /// The audio object type; 2 is AAC-LC.
    object: u8,
    rate_index: u8,
    channels: u8,
}

impl AacConfig {
    /// The sampling rate, Hz.
    pub(crate) fn rate(self) -> u32 {
        SAMPLING_RATES.get(usize::from(self.rate_index)).copied().unwrap_or(48_000)
    }

    /// The name of the codec (RFC 6381).
    pub(crate) fn codec_name(self) -> String {
        format!("mp4a.40.{}", self.object)
    }

    pub(crate) fn sample_entry(self) -> Codec {
        // A rate that is too high for this field is only in the time scale and the decoder configuration.
        let rate = u16::try_from(self.rate()).unwrap_or(0);
        let specific = DecoderSpecific {
            profile: self.object,
            freq_index: self.rate_index,
            chan_conf: self.channels,
            ..DecoderSpecific::default()
        };
        let config = DecoderConfig {
            object_type_indication: 0x40,
            stream_type: 5,
            dec_specific: Some(specific),
            ..DecoderConfig::default()
        };
        let es_desc = EsDescriptor {
            es_id: 2,
            dec_config: config,
            sl_config: SLConfig::default(),
            ..EsDescriptor::default()
        };
        let audio = Audio {
            data_reference_index: 1,
            channel_count: if self.channels == 7 { 8 } else { u16::from(self.channels) },
            sample_size: 16,
            sample_rate: rate.into(),
        };
        Codec::from(Mp4a { audio, esds: Esds { es_desc }, btrt: None, taic: None })
    }
}

/// Splits a byte stream into ADTS frames, which may cross the ends of its pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdtsReader {
    rest: Vec<u8>,
}

impl AdtsReader {
    /// Adds bytes. Returns the frames that they complete, without headers. Other bytes are skipped.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<(AacConfig, Vec<u8>)> {
        self.rest.extend_from_slice(bytes);
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(head) = self.rest.get(at..).and_then(|rest| rest.first_chunk::<HEADER>()) {
            let Some((config, start, length)) = read_header(*head) else {
                at += 1;
                continue;
            };
            let Some(frame) = self.rest.get(at..at + length) else { break };
            found.push((config, frame[start..].to_vec()));
            at += length;
        }
        // The rest is shorter than the longest frame, 8191 bytes.
        self.rest.drain(..at);
        found
    }
}

/// Reads the configuration, and the start and the end of the frame's payload.
fn read_header(head: [u8; HEADER]) -> Option<(AacConfig, usize, usize)> {
    let [a, b, c, d, e, f, g] = head;
    let is_header = a == 0xff && b & 0xf6 == 0xf0;
    let config = AacConfig {
        object: (c >> 6) + 1,
        rate_index: c >> 2 & 0xf,
        channels: (c & 1) << 2 | d >> 6,
    };
    let start = if b & 1 == 0 { HEADER + 2 } else { HEADER };
    let length = usize::from(d & 3) << 11 | usize::from(e) << 3 | usize::from(f >> 5);
    // Only frames with one block: encoders do not write more.
    let is_frame = is_header
        && usize::from(config.rate_index) < SAMPLING_RATES.len()
        && config.channels > 0
        && length > start
        && g & 3 == 0;
    is_frame.then_some((config, start, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of AAC-LC, 44.1 kHz, stereo.
    fn adts(body: &[u8]) -> Vec<u8> {
        let length = (body.len() + HEADER) as u16;
        let [_, low] = (length << 5).to_be_bytes();
        let mut frame = vec![0xff, 0xf1, 0x50, 0x80 | (length >> 11) as u8, (length >> 3) as u8];
        frame.extend([low | 0x1f, 0xfc]);
        frame.extend_from_slice(body);
        frame
    }

    #[test]
    fn frames_do_not_depend_on_how_the_bytes_are_cut() {
        let bodies: Vec<Vec<u8>> = (1..40).map(|n| vec![n; usize::from(n) * 7]).collect();
        let mut bytes = vec![1, 2, 0xff];
        bodies.iter().for_each(|body| bytes.extend(adts(body)));
        for size in [1, 2, 7, 100, bytes.len()] {
            let mut reader = AdtsReader::default();
            let found: Vec<_> = bytes.chunks(size).flat_map(|piece| reader.push(piece)).collect();
            assert!(found.iter().map(|(_, body)| body).eq(&bodies), "{size}");
            let config = found[0].0;
            assert_eq!(
                (config.rate(), config.channels, config.codec_name()),
                (44_100, 2, "mp4a.40.2".into())
            );
            assert!(reader.rest.is_empty());
        }
    }

    #[test]
    fn incomplete_frames_are_bounded() {
        let mut reader = AdtsReader::default();
        let head = &adts(&[0; 8000])[..HEADER];
        for _ in 0..100 {
            reader.push(&[0xff; 10_000]);
            reader.push(head);
            assert!(reader.rest.len() < 10_000 + 8192);
        }
    }
}
