//! A source's offer: the root by which everything else of a cast is verified.

use super::CastId;
use crate::{
    manifest::{CHUNK_BYTES, MAX_CHUNKS, ObjectId},
    object::FilePath,
    reader::Reader,
    signed::{DecodeError, Signable},
};
use thalweg_units::{NodeId, WallTime};

/// The smallest symbol, bytes: a leaf of BLAKE3.
pub const MIN_SYMBOL: u32 = 1 << 10;

/// The largest symbol, bytes.
pub const MAX_SYMBOL: u32 = 1 << 16;

/// The maximum number of source symbols of a block; their digests have 512 KiB.
pub const MAX_BLOCK_SYMBOLS: u32 = 1 << 14;

/// The maximum number of repair symbols of a block.
pub const MAX_REPAIR: u32 = 1 << 14;

const VERSION: u8 = 1;

/// The longest name, bytes: the limit of common file systems.
const MAX_NAME: usize = 255;

/// How an object is cut into blocks of symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// S: bytes of a symbol, a power of two from [`MIN_SYMBOL`] to [`MAX_SYMBOL`]. The last symbol of the object may be
    /// shorter.
    pub symbol_bytes: u32,
    /// K: the number of source symbols of a block, which are whole chunks of the manifest. The last block may be
    /// shorter.
    pub block_symbols: u32,
    /// R: the number of repair symbols of a block, from ESI K on.
    pub repair_symbols: u32,
}

/// An offer of a source to its receivers, signed by the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The object's name at the receivers: one component of a path, which does not begin with `.thalweg`.
    pub name: FilePath,
    pub object: ObjectId,
    /// The object's length in bytes.
    pub length: u64,
    /// The BLAKE3 hash of the encoded [`super::Layout`].
    pub layout: [u8; 32],
    /// The encoded layout's length in bytes.
    pub layout_bytes: u32,
    /// How the object is cut.
    pub shape: Shape,
    /// Whether data may be sent in the clear between hosts that have proven their keys.
    pub open: bool,
    /// When the offer was made.
    pub created: WallTime,
    /// The date from which on nothing is served.
    pub expiry: WallTime,
}

impl Offer {
    /// The id of the cast if the owner of this key offers it. It is the same for the same object, cut the same way,
    /// under the same name.
    pub fn id(&self, signer: &NodeId) -> CastId {
        let mut hasher = blake3::Hasher::new_derive_key("thalweg cast 1 id");
        hasher.update(signer.as_bytes()).update(self.object.as_bytes()).update(&self.layout);
        let Shape { symbol_bytes, block_symbols, repair_symbols } = self.shape;
        for number in [symbol_bytes, block_symbols, repair_symbols] {
            hasher.update(&number.to_be_bytes());
        }
        hasher.update(self.name.as_bytes());
        let mut id = [0; 16];
        hasher.finalize_xof().fill(&mut id);
        CastId::from_bytes(id)
    }

    /// The number of source symbols.
    pub fn symbols(&self) -> u64 {
        self.length.div_ceil(self.shape.symbol_bytes.into())
    }

    /// The number of blocks.
    pub fn blocks(&self) -> u64 {
        self.symbols().div_ceil(u64::from(self.shape.block_symbols).max(1))
    }

    /// The length of the encoded manifest, bytes.
    pub fn manifest_bytes(&self) -> u64 {
        1 + 8 + 32 + 32 * self.length.div_ceil(CHUNK_BYTES)
    }
}

impl Shape {
    fn check(self) -> Result<Self, DecodeError> {
        let Self { symbol_bytes, block_symbols, repair_symbols } = self;
        let is_symbol =
            symbol_bytes.is_power_of_two() && (MIN_SYMBOL..=MAX_SYMBOL).contains(&symbol_bytes);
        if !is_symbol {
            return Err(DecodeError::Invalid("the symbol size is not 1, 2, 4 … 64 KiB"));
        }
        let block = u64::from(symbol_bytes) * u64::from(block_symbols);
        if !(1..=MAX_BLOCK_SYMBOLS).contains(&block_symbols) || block % CHUNK_BYTES != 0 {
            return Err(DecodeError::Invalid(
                "a block is not a whole number of chunks, or does not \
                                             have 1 to 16384 symbols",
            ));
        }
        if repair_symbols > MAX_REPAIR {
            return Err(DecodeError::Invalid("a block has more than 16384 repair symbols"));
        }
        Ok(self)
    }
}

impl Signable for Offer {
    const DOMAIN: &'static str = "cast-offer";
    const MAX_BYTES: usize = 1 + 32 + 8 + 32 + 4 + 12 + 1 + 16 + 1 + MAX_NAME;

    /// `version:u8 ‖ object:32 ‖ length:u64 ‖ layout:32 ‖ layout bytes:u32 ‖ S, K, R:u32 each ‖
    /// open:u8 ‖ created, expiry:u64 each ‖ length of the name:u8 ‖ name`, big-endian.
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend(self.object.as_bytes());
        out.extend(self.length.to_be_bytes());
        out.extend(self.layout);
        out.extend(self.layout_bytes.to_be_bytes());
        let Shape { symbol_bytes, block_symbols, repair_symbols } = self.shape;
        for number in [symbol_bytes, block_symbols, repair_symbols] {
            out.extend(number.to_be_bytes());
        }
        out.push(self.open.into());
        out.extend(self.created.as_unix_nanos().to_be_bytes());
        out.extend(self.expiry.as_unix_nanos().to_be_bytes());
        let name = self.name.as_bytes();
        // `decode` reads names of at most 255 bytes.
        out.push(name.len().min(MAX_NAME) as u8);
        out.extend(&name[..name.len().min(MAX_NAME)]);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.array()? != [VERSION] {
            return Err(DecodeError::Invalid("the version of the offer's layout is not known"));
        }
        let object = ObjectId::from_bytes(reader.array()?);
        let length = u64::from_be_bytes(reader.array()?);
        let max = MAX_CHUNKS as u64 * CHUNK_BYTES;
        if length > max {
            return Err(DecodeError::TooLarge { length, max });
        }
        let layout = reader.array()?;
        let layout_bytes = u32::from_be_bytes(reader.array()?);
        if layout_bytes as usize > super::MAX_LAYOUT {
            let (length, max) = (layout_bytes.into(), super::MAX_LAYOUT as u64);
            return Err(DecodeError::TooLarge { length, max });
        }
        let mut number = || Ok::<_, DecodeError>(u32::from_be_bytes(reader.array()?));
        let (symbol_bytes, block_symbols, repair_symbols) = (number()?, number()?, number()?);
        let shape = Shape { symbol_bytes, block_symbols, repair_symbols }.check()?;
        let open = match reader.array()? {
            [0] => false,
            [1] => true,
            _ => return Err(DecodeError::Invalid("the field `open` is not 0 or 1")),
        };
        let mut time = || Ok::<_, DecodeError>(u64::from_be_bytes(reader.array()?));
        let (created, expiry) = (time()?, time()?);
        let (created, expiry) =
            (WallTime::from_unix_nanos(created), WallTime::from_unix_nanos(expiry));
        let [name] = reader.array()?;
        let name = parse_name(reader.take(name.into())?)?;
        reader.end()?;
        Ok(Self { name, object, length, layout, layout_bytes, shape, open, created, expiry })
    }
}

fn parse_name(bytes: &[u8]) -> Result<FilePath, DecodeError> {
    let is_plain = !bytes.is_empty() && !bytes.contains(&b'/') && !bytes.starts_with(b".thalweg");
    let name = FilePath::new(bytes.to_vec()).ok().filter(|_| is_plain);
    name.ok_or(DecodeError::Invalid("the name is not a plain file name"))
}
