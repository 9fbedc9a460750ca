//! Writes the boxes of init and media segments (ISO/IEC 14496-12).

use super::{aac::AacConfig, parameters::VideoParameters};
use crate::dts_timeline::CLOCK;
use mp4_atom::{
    Codec, Dinf, Dref, DrefEntry, Encode, Ftyp, Hdlr, Mdhd, Mdia, Mfhd, Minf, Moof, Moov, Mvex,
    Mvhd, Smhd, Stbl, Stsd, Styp, Tfdt, Tfhd, Tkhd, Traf, Trak, Trex, Trun, TrunEntry, TrunSamples,
    Url, Vmhd,
};

const VIDEO: u32 = 1;
const AUDIO: u32 = 2;

/// The flags of samples (8.8.3.1): key frames, and all others.
const SYNC: u32 = 0x0200_0000;
const NO_SYNC: u32 = 0x0101_0000;

/// A picture or a frame of audio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// In ticks of its track.
    pub(crate) duration: u32,
    /// The time from decoding to showing it, ticks.
    pub(crate) shown_after: u32,
    pub(crate) is_key: bool,
    pub(crate) bytes: Vec<u8>,
}

/// Consecutive samples of one track.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleRun {
    /// The decoding time of the first sample, ticks.
    pub(crate) start: u64,
    pub(crate) samples: Vec<Sample>,
}

/// The contents of an init segment.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct InitConfig {
    pub(crate) video: Option<VideoParameters>,
    pub(crate) audio: Option<AacConfig>,
}

impl InitConfig {
    /// The codecs (RFC 6381), separated by commas.
    pub(crate) fn codec_names(&self) -> String {
        let video = self.video.iter().map(|video| video.codec_name.clone());
        video.chain(self.audio.map(AacConfig::codec_name)).collect::<Vec<_>>().join(",")
    }

    /// Encodes the init segment; `None` if a parameter set is too long for its box.
    pub(crate) fn init_segment(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let brands = [b"iso6", b"mp41", b"hlsf"].map(|brand| brand.into()).to_vec();
        let ftyp =
            Ftyp { major_brand: b"iso6".into(), minor_version: 0, compatible_brands: brands };
        ftyp.encode(&mut bytes).ok()?;
        let video = self.video.iter().map(video_track);
        let trak: Vec<Trak> = video.chain(self.audio.map(audio_track)).collect();
        let trex = trak.iter().map(|trak| Trex {
            track_id: trak.tkhd.track_id,
            default_sample_description_index: 1,
            ..Trex::default()
        });
        let moov = Moov {
            mvhd: Mvhd {
                timescale: 1000,
                rate: 1.into(),
                volume: 1.into(),
                next_track_id: 3,
                ..Mvhd::default()
            },
            mvex: Some(Mvex { mehd: None, trex: trex.collect() }),
            trak,
            ..Moov::default()
        };
        moov.encode(&mut bytes).ok()?;
        Some(bytes)
    }
}

fn video_track(video: &VideoParameters) -> Trak {
    let tkhd =
        Tkhd { width: video.width.into(), height: video.height.into(), ..track_header(VIDEO) };
    let minf = Minf { vmhd: Some(Vmhd::default()), ..media_information(video.sample_entry()) };
    track(tkhd, CLOCK as u32, b"vide", minf)
}

fn audio_track(audio: AacConfig) -> Trak {
    let tkhd = Tkhd { volume: 1.into(), alternate_group: 1, ..track_header(AUDIO) };
    let minf = Minf { smhd: Some(Smhd::default()), ..media_information(audio.sample_entry()) };
    track(tkhd, audio.rate(), b"soun", minf)
}

fn track_header(track_id: u32) -> Tkhd {
    Tkhd { track_id, enabled: true, in_movie: true, ..Tkhd::default() }
}

fn media_information(entry: Codec) -> Minf {
    let here = DrefEntry::Url(Url::default());
    Minf {
        dinf: Dinf { dref: Dref { entries: vec![here] } },
        // All samples are in fragments.
        stbl: Stbl {
            stsd: Stsd { codecs: vec![entry] },
            stco: Some(mp4_atom::Stco::default()),
            ..Stbl::default()
        },
        ..Minf::default()
    }
}

fn track(tkhd: Tkhd, timescale: u32, handler: &[u8; 4], minf: Minf) -> Trak {
    let mdhd = Mdhd { timescale, language: "und".to_owned(), ..Mdhd::default() };
    let hdlr = Hdlr { handler: handler.into(), name: String::new() };
    Trak { tkhd, mdia: Mdia { mdhd, hdlr, minf }, ..Trak::default() }
}

/// Encodes a media segment; `None` if it is too large for its boxes.
pub(crate) fn media_segment(number: u32, video: &SampleRun, audio: &SampleRun) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let brands = [b"msdh", b"msix"].map(|brand| brand.into()).to_vec();
    let styp = Styp { major_brand: b"msdh".into(), minor_version: 0, compatible_brands: brands };
    styp.encode(&mut bytes).ok()?;
    let length =
        |run: &SampleRun| run.samples.iter().map(|sample| sample.bytes.len()).sum::<usize>();
    // The data start after this box and the header of the next one.
    let mut start = {
        let mut moof = Vec::new();
        movie_fragment(number, video, audio, 0)?.encode(&mut moof).ok()?;
        moof.len() + 8
    };
    movie_fragment(number, video, audio, start)?.encode(&mut bytes).ok()?;
    start = 8 + length(video) + length(audio);
    bytes.extend(u32::try_from(start).ok()?.to_be_bytes());
    bytes.extend(b"mdat");
    for sample in video.samples.iter().chain(&audio.samples) {
        bytes.extend_from_slice(&sample.bytes);
    }
    Some(bytes)
}

/// The `moof` box of a segment whose samples start `start` bytes after the start of the box.
fn movie_fragment(number: u32, video: &SampleRun, audio: &SampleRun, start: usize) -> Option<Moof> {
    let mut at = start;
    let mut traf = Vec::new();
    for (track_id, run) in [(VIDEO, video), (AUDIO, audio)] {
        if run.samples.is_empty() {
            continue;
        }
        let entry = |sample: &Sample| {
            Some(TrunEntry {
                duration: Some(sample.duration),
                size: Some(u32::try_from(sample.bytes.len()).ok()?),
                flags: Some(if sample.is_key { SYNC } else { NO_SYNC }),
                cts: Some(i64::from(sample.shown_after)),
            })
        };
        let entries: Option<Vec<TrunEntry>> = run.samples.iter().map(entry).collect();
        traf.push(Traf {
            tfhd: Tfhd { track_id, default_base_is_moof: true, ..Tfhd::default() },
            tfdt: Some(Tfdt { base_media_decode_time: run.start }),
            trun: vec![Trun {
                data_offset: Some(i32::try_from(at).ok()?),
                samples: TrunSamples::Explicit(entries?),
            }],
            ..Traf::default()
        });
        at += run.samples.iter().map(|sample| sample.bytes.len()).sum::<usize>();
    }
    Some(Moof { mfhd: Mfhd { sequence_number: number }, traf })
}
