//! The boxes of init and media segments (ISO/IEC 14496-12).

use super::{aac::AacConfig, parameters::VideoParameters};
use crate::dts_timeline::CLOCK;
use mp4_atom::{
    Codec, Dinf, Dref, DrefEntry, Encode, Ftyp, Hdlr, Mdhd, Mdia, Mfhd, Minf, Moof, Moov, Mvex,
    Mvhd, Smhd, Stbl, Stsd, Styp, Tfdt, Tfhd, Tkhd, Traf, Trak, Trex, Trun, TrunEntry, TrunSamples,
    Url, Vmhd,
};

const VIDEO: u32 = 1;
const AUDIO: u32 = 2;

/// Flags of samples (8.8.3.1): one that depends on no other, and one that does and at which decoding cannot begin.
const SYNC: u32 = 0x0200_0000;
const NO_SYNC: u32 = 0x0101_0000;

/// A picture, or a frame of sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// How long it lasts, ticks.
    pub(crate) duration: u32,
    /// How much later than it is decoded it is shown, ticks.
    pub(crate) shown_after: u32,
    pub(crate) is_key: bool,
    pub(crate) bytes: Vec<u8>,
}

/// Samples of one track, one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleRun {
    /// When the first is decoded, ticks.
    pub(crate) start: u64,
    pub(crate) samples: Vec<Sample>,
}

/// What an init segment says.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct InitConfig {
    pub(crate) video: Option<VideoParameters>,
    pub(crate) audio: Option<AacConfig>,
}

impl InitConfig {
    /// As RFC 6381 has it, with commas between.
    pub(crate) fn codec_names(&self) -> String {
        let video = self.video.iter().map(|video| video.codec_name.clone());
        video.chain(self.audio.map(AacConfig::codec_name)).collect::<Vec<_>>().join(",")
    }

    /// The init segment; `None` if it cannot be written: a parameter set is longer than its box can have it.
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
        // Samples are in fragments alone.
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

/// A media segment; `None` if it is larger than its boxes can have it.
pub(crate) fn media_segment(number: u32, video: &SampleRun, audio: &SampleRun) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let brands = [b"msdh", b"msix"].map(|brand| brand.into()).to_vec();
    let styp = Styp { major_brand: b"msdh".into(), minor_version: 0, compatible_brands: brands };
    styp.encode(&mut bytes).ok()?;
    let length =
        |run: &SampleRun| run.samples.iter().map(|sample| sample.bytes.len()).sum::<usize>();
    // The data begin behind this box and the head of the next.
    let mut start = {
        let mut box_alone = Vec::new();
        movie_fragment(number, video, audio, 0)?.encode(&mut box_alone).ok()?;
        box_alone.len() + 8
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

/// Where the samples are that begin so many bytes behind the beginning of this box.
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
