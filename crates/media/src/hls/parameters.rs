//! Reads the parameter sets of H.264 and H.265, and creates the sample entries of MP4.

use crate::nal::{NalRole, Syntax, decode_payload, nal_units};
use h264_reader::{
    nal::sps::SeqParameterSet,
    rbsp::{BitRead, BitReader, BitReaderError},
};
use mp4_atom::{Avc1, Avcc, AvccExt, Codec, Hvc1, HvcCArray, Hvcc, Visual};
use std::{collections::BTreeMap, fmt::Write as _};
use thiserror::Error;

/// The maximum number of parameter sets of one kind: the limit of `avcC`.
const MAX_SETS: usize = 31;

/// The parameter sets are missing or malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the parameter sets are missing or cannot be read")]
pub struct BadParameters;

/// The decoder configuration of a video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VideoParameters {
    syntax: Syntax,
    /// The parameter sets by NAL type, in the order of their arrival.
    sets: BTreeMap<u8, Vec<Vec<u8>>>,
    pub(crate) width: u16,
    pub(crate) height: u16,
    /// The name of the codec (RFC 6381), such as `avc1.64001f`.
    pub(crate) codec_name: String,
    sample_entry: Codec,
}

impl VideoParameters {
    /// Reads the parameter sets of a key frame, whose body is a byte stream.
    pub(crate) fn read(syntax: Syntax, body: &[u8]) -> Result<Self, BadParameters> {
        let mut sets: BTreeMap<u8, Vec<Vec<u8>>> = BTreeMap::new();
        for nal in nal_units(body).filter(|nal| is_in_sample_entry(syntax, nal)) {
            let of_kind = sets.entry(syntax.kind(nal)).or_default();
            let is_known = of_kind.iter().any(|known| known == nal);
            if !is_known && of_kind.len() < MAX_SETS && nal.len() <= usize::from(u16::MAX) {
                of_kind.push(nal.to_vec());
            }
        }
        match syntax {
            Syntax::H264 => Self::h264(sets),
            Syntax::H265 => Self::h265(sets),
        }
    }

    pub(crate) fn sample_entry(&self) -> Codec {
        self.sample_entry.clone()
    }

    fn h264(sets: BTreeMap<u8, Vec<Vec<u8>>>) -> Result<Self, BadParameters> {
        let sets_of_kind = |kind: u8| sets.get(&kind).cloned().unwrap_or_default();
        let (all, pictures) = (sets_of_kind(7), sets_of_kind(8));
        let first = all.first().filter(|sps| sps.len() > 3).ok_or(BadParameters)?;
        if pictures.is_empty() {
            return Err(BadParameters);
        }
        let bits = decode_payload(first, 1).ok_or(BadParameters)?;
        let sps =
            SeqParameterSet::from_bits(BitReader::new(&bits[..])).map_err(|_| BadParameters)?;
        let (width, height) = checked_size(sps.pixel_dimensions().map_err(|_| BadParameters)?)?;
        let [profile, compatibility, level] = [first[1], first[2], first[3]];
        let chroma = &sps.chroma_info;
        let ext = matches!(profile, 100 | 110 | 122 | 144).then(|| AvccExt {
            chroma_format: chroma.chroma_format.to_u32() as u8 & 3,
            bit_depth_luma: 8 + chroma.bit_depth_luma_minus8,
            bit_depth_chroma: 8 + chroma.bit_depth_chroma_minus8,
            sequence_parameter_sets_ext: sets_of_kind(13),
        });
        let avcc = Avcc {
            configuration_version: 1,
            avc_profile_indication: profile,
            profile_compatibility: compatibility,
            avc_level_indication: level,
            length_size: 4,
            sequence_parameter_sets: all,
            picture_parameter_sets: pictures,
            ext,
        };
        let codec_name = format!("avc1.{profile:02x}{compatibility:02x}{level:02x}");
        let sample_entry =
            Codec::from(Avc1 { visual: visual(width, height), avcc, ..Avc1::default() });
        Ok(Self { syntax: Syntax::H264, sets, width, height, codec_name, sample_entry })
    }

    fn h265(sets: BTreeMap<u8, Vec<Vec<u8>>>) -> Result<Self, BadParameters> {
        let first = sets.get(&33).and_then(|all| all.first()).ok_or(BadParameters)?;
        if !sets.contains_key(&32) || !sets.contains_key(&34) {
            return Err(BadParameters);
        }
        let bits = decode_payload(first, 2).ok_or(BadParameters)?;
        let sps = H265SequenceSet::read(&bits).map_err(|_| BadParameters)?;
        let (width, height) = checked_size(sps.size().ok_or(BadParameters)?)?;
        let arrays = sets.iter().map(|(kind, nalus)| HvcCArray {
            completeness: true,
            nal_unit_type: *kind,
            nalus: nalus.clone(),
        });
        let hvcc = Hvcc { arrays: arrays.collect(), ..sps.hvcc() };
        let codec_name = sps.codec_name();
        let sample_entry =
            Codec::from(Hvc1 { visual: visual(width, height), hvcc, ..Hvc1::default() });
        Ok(Self { syntax: Syntax::H265, sets, width, height, codec_name, sample_entry })
    }
}

/// Whether a NAL unit belongs to the sample entry instead of the samples.
pub(crate) fn is_in_sample_entry(syntax: Syntax, nal: &[u8]) -> bool {
    // The sample entry has no field for subset sequence parameter sets.
    matches!(syntax.role(nal), NalRole::Set { .. })
        && !(syntax == Syntax::H264 && syntax.kind(nal) == 15)
}

fn checked_size((width, height): (u32, u32)) -> Result<(u16, u16), BadParameters> {
    let number = |n: u32| u16::try_from(n).ok().filter(|n| *n > 0).ok_or(BadParameters);
    Ok((number(width)?, number(height)?))
}

fn visual(width: u16, height: u16) -> Visual {
    Visual { data_reference_index: 1, width, height, ..Visual::default() }
}

/// The first fields of a sequence parameter set of H.265 (ISO/IEC 23008-2, 7.3.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct H265SequenceSet {
    /// The number of temporal sub-layers minus one.
    layers: u8,
    is_nested: bool,
    /// The byte with space, tier and profile.
    profile: u8,
    compatibility: [u8; 4],
    constraints: [u8; 6],
    level: u8,
    chroma: u8,
    width: u32,
    height: u32,
    /// The conformance window: left, right, top, bottom, in chroma samples.
    window: [u32; 4],
    luma_depth: u8,
    chroma_depth: u8,
}

impl H265SequenceSet {
    fn read(bytes: &[u8]) -> Result<Self, BitReaderError> {
        let mut bits = BitReader::new(bytes);
        let mut sps = Self::default();
        bits.skip(4, "vps_id")?;
        sps.layers = bits.read::<3, u8>("max_sub_layers_minus1")?;
        sps.is_nested = bits.read_bit("temporal_id_nesting")?;
        sps.profile = bits.read_to("profile")?;
        sps.compatibility = bits.read_to::<u32>("compatibility")?.to_be_bytes();
        for byte in &mut sps.constraints {
            *byte = bits.read_to("constraint")?;
        }
        sps.level = bits.read_to("level")?;
        skip_layers(&mut bits, sps.layers)?;
        bits.read_ue("sps_id")?;
        sps.chroma = bits.read_ue("chroma_format_idc")?.min(3) as u8;
        if sps.chroma == 3 {
            bits.skip(1, "separate_colour_plane")?;
        }
        sps.width = bits.read_ue("width")?;
        sps.height = bits.read_ue("height")?;
        if bits.read_bit("conformance_window")? {
            for side in &mut sps.window {
                *side = bits.read_ue("offset")?;
            }
        }
        sps.luma_depth = bits.read_ue("bit_depth_luma")?.min(7) as u8;
        sps.chroma_depth = bits.read_ue("bit_depth_chroma")?.min(7) as u8;
        Ok(sps)
    }

    /// The width and height of the shown picture.
    fn size(&self) -> Option<(u32, u32)> {
        let (across, down) = match self.chroma {
            1 => (2, 2),
            2 => (2, 1),
            _ => (1, 1),
        };
        let [left, right, top, bottom] = self.window;
        let cut = |whole: u32, a: u32, b: u32, unit: u32| {
            whole.checked_sub(a.checked_add(b)?.checked_mul(unit)?)
        };
        Some((cut(self.width, left, right, across)?, cut(self.height, top, bottom, down)?))
    }

    fn hvcc(&self) -> Hvcc {
        Hvcc {
            general_profile_space: self.profile >> 6,
            general_tier_flag: self.profile & 0x20 != 0,
            general_profile_idc: self.profile & 0x1f,
            general_profile_compatibility_flags: self.compatibility,
            general_constraint_indicator_flags: self.constraints,
            general_level_idc: self.level,
            chroma_format_idc: self.chroma,
            bit_depth_luma_minus8: self.luma_depth,
            bit_depth_chroma_minus8: self.chroma_depth,
            num_temporal_layers: self.layers + 1,
            temporal_id_nested: self.is_nested,
            length_size_minus_one: 3,
            ..Hvcc::new()
        }
    }

    /// The name of the codec (ISO/IEC 14496-15, annex E), such as `hvc1.1.6.L93.B0`.
    fn codec_name(&self) -> String {
        let space = ["", "A", "B", "C"][usize::from(self.profile >> 6)];
        let tier = if self.profile & 0x20 == 0 { 'L' } else { 'H' };
        let compatibility = u32::from_be_bytes(self.compatibility).reverse_bits();
        let idc = self.profile & 0x1f;
        let mut name = format!("hvc1.{space}{idc}.{compatibility:X}.{tier}{}", self.level);
        let end = self.constraints.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        for byte in &self.constraints[..end] {
            _ = write!(name, ".{byte:X}");
        }
        name
    }
}

/// Skips the profiles and levels of sub-layers.
fn skip_layers(bits: &mut impl BitRead, layers: u8) -> Result<(), BitReaderError> {
    let mut lengths = 0;
    for _ in 0..layers {
        lengths += if bits.read_bit("sub_layer_profile_present")? { 88 } else { 0 };
        lengths += if bits.read_bit("sub_layer_level_present")? { 8 } else { 0 };
    }
    if layers > 0 {
        lengths += 2 * (8 - u32::from(layers));
    }
    bits.skip(lengths, "sub_layers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unit(nals: &[&[u8]]) -> Vec<u8> {
        nals.iter().flat_map(|nal| [&[0, 0, 0, 1], *nal].concat()).collect()
    }

    /// From x264, 320 × 180.
    const SPS: &[u8] = &[
        0x67, 0x64, 0x00, 0x0d, 0xac, 0xd9, 0x41, 0x41, 0x9f, 0x9e, 0x10, 0x00, 0x00, 0x03, 0x00,
        0x10, 0x00, 0x00, 0x03, 0x03, 0xc0, 0xf1, 0x42, 0x99, 0x60,
    ];

    #[test]
    fn sets_of_h264_are_read() {
        let pps = &[0x68, 0xeb, 0xe3, 0xcb, 0x22, 0xc0][..];
        let read = |nals: &[&[u8]]| VideoParameters::read(Syntax::H264, &unit(nals));
        let found = read(&[SPS, pps, &[0x65, 0x88]]).expect("right");
        assert_eq!(
            (found.width, found.height, found.codec_name.as_str()),
            (320, 180, "avc1.64000d")
        );
        assert_eq!(read(&[SPS, pps]), read(&[&[9, 0x10], SPS, pps, pps]));
        assert_eq!(read(&[SPS]), Err(BadParameters));
        assert_eq!(read(&[&SPS[..6], pps]), Err(BadParameters));
        assert_eq!(read(&[pps]), Err(BadParameters));
    }

    /// From x265, 64 × 48.
    const SPS_H265: &[u8] = &[
        0x42, 0x01, 0x01, 0x01, 0x60, 0x00, 0x00, 0x03, 0x00, 0x90, 0x00, 0x00, 0x03, 0x00, 0x00,
        0x03, 0x00, 0x1e, 0xa0, 0x20, 0x83, 0x16, 0x59, 0x59, 0x6e, 0x4c, 0xaf, 0x01, 0x68, 0x08,
        0x00, 0x00, 0x03, 0x00, 0x08, 0x00, 0x00, 0x03, 0x00, 0x60, 0x40,
    ];

    #[test]
    fn sets_of_h265_are_read() {
        let sps = SPS_H265;
        let (vps, pps) = (&[0x40, 0x01, 0x0c][..], &[0x44, 0x01, 0xc1][..]);
        let read = |nals: &[&[u8]]| VideoParameters::read(Syntax::H265, &unit(nals));
        let found = read(&[vps, sps, pps, &[0x26, 0x01, 0xaf]]).expect("right");
        assert_eq!(
            (found.width, found.height, found.codec_name.as_str()),
            (64, 48, "hvc1.1.6.L30.90")
        );
        assert_eq!(read(&[sps, pps]), Err(BadParameters));
        assert_eq!(read(&[vps, sps]), Err(BadParameters));
        for end in 0..22 {
            assert_eq!(read(&[vps, &sps[..end], pps]), Err(BadParameters), "{end}");
        }
    }

    #[test]
    fn a_window_larger_than_the_picture_is_refused() {
        let sps = H265SequenceSet {
            chroma: 1,
            width: 64,
            height: 64,
            window: [0, 2, 0, 4],
            ..H265SequenceSet::default()
        };
        assert_eq!(sps.size(), Some((60, 56)));
        assert_eq!(H265SequenceSet { window: [0, 33, 0, 0], ..sps }.size(), None);
        assert_eq!(H265SequenceSet { window: [u32::MAX, 1, 0, 0], ..sps }.size(), None);
    }

    #[test]
    fn codec_names_have_the_profile_and_constraints() {
        let sps = H265SequenceSet {
            profile: 1,
            compatibility: [0x60, 0, 0, 0],
            constraints: [0xb0, 0, 0, 0, 0, 0],
            level: 93,
            ..H265SequenceSet::default()
        };
        assert_eq!(sps.codec_name(), "hvc1.1.6.L93.B0");
    }

    /// The set with a few bits changed, perhaps truncated; or arbitrary bytes.
    fn altered(set: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
        let flips = prop::collection::vec((1..set.len(), 0..8), 0..6);
        let changed = (flips, 0..=set.len(), any::<bool>()).prop_map(|(flips, end, is_cut)| {
            let mut set = set.to_vec();
            flips.into_iter().for_each(|(at, bit)| set[at] ^= 1_u8 << bit);
            set.truncate(if is_cut { end } else { set.len() });
            set
        });
        let any = prop::collection::vec(any::<u8>(), 0..60).prop_map(|mut any| {
            any.insert(0, set[0]);
            any
        });
        prop_oneof![3 => changed, 1 => any]
    }

    proptest! {
        #[test]
        fn arbitrary_sets_do_not_panic(h264 in altered(SPS), h265 in altered(SPS_H265)) {
            _ = VideoParameters::read(Syntax::H264, &unit(&[&h264, &[0x68, 1]]));
            _ = VideoParameters::read(Syntax::H265, &unit(&[&[0x40, 1, 1], &h265, &[0x44, 1, 1]]));
        }
    }
}
