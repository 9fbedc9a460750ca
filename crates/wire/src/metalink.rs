//! Parses Metalinks of version 4 (RFC 5854) and 3: files with their mirrors, sizes and hashes.
//!
//! Metalinks are untrusted: names must go through [`File::path`], which makes them safe, and the document is bounded
//! ([`MAX_BYTES`], [`MAX_FILES`], [`MAX_URLS`]). Entities other than XML's own five are refused, and so is a document
//! type with declarations, so that nothing is fetched and nothing expands while a document is parsed.

use crate::{file_name, text_encoding};
use quick_xml::{
    NsReader, XmlVersion,
    events::{BytesStart, Event},
    name::ResolveResult,
};
use std::borrow::Cow;
use thiserror::Error;

/// The longest document, bytes. A file with a hundred mirrors and hashes takes some 20 kB.
pub const MAX_BYTES: usize = 8 << 20;

/// The maximum number of files in one document.
pub const MAX_FILES: usize = 10_000;

/// The maximum number of URLs kept per file; later ones are counted as skipped.
pub const MAX_URLS: usize = 100;

/// The priority of a URL without a `priority` attribute (RFC 5854 §4.2.16.1).
const LAST: u32 = 999_999;

/// The maximum number of components in a name.
const MAX_DEPTH: usize = 16;

/// The namespace of RFC 5854 §4.1.
const NAMESPACE: &str = "urn:ietf:params:xml:ns:metalink";

/// The namespace of version 3, which mirror networks of Linux distributions still send.
const NAMESPACE_3: &str = "http://www.metalinker.org/";

/// One file of a Metalink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// The name as written; see [`File::path`].
    pub name: String,
    /// The length in bytes.
    pub size: Option<u64>,
    /// The SHA-256 of the whole file.
    pub sha256: Option<[u8; 32]>,
    /// The SHA-512 of the whole file.
    pub sha512: Option<[u8; 64]>,
    /// The SHA-1 of the whole file. Like MD5 it is weak: it detects accidental damage only.
    pub sha1: Option<[u8; 20]>,
    /// The MD5 of the whole file.
    pub md5: Option<[u8; 16]>,
    /// The hashes of the file's pieces, of the strongest type.
    pub pieces: Option<Pieces>,
    /// The types of other hashes, which are unsupported or malformed.
    pub other_hashes: Vec<String>,
    /// The URLs of the file, the best first: by priority, then in document order. They are not validated, and some may
    /// be relative to the document's URL.
    pub urls: Vec<String>,
    /// The number of sources left out: neither http nor https, or beyond [`MAX_URLS`].
    pub skipped: usize,
}

/// Hashes of a file's pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// `sha512`, `sha256`, `sha1` or `md5`.
    pub kind: &'static str,
    /// The length of each piece except the last, at least 1 byte.
    pub length: u64,
    /// The hashes in hexadecimal digits, in the order of the pieces.
    pub hashes: Vec<String>,
}

/// Types of hashes with their number of hexadecimal digits, the strongest first.
const KINDS: [(&str, usize); 4] = [("sha512", 128), ("sha256", 64), ("sha1", 40), ("md5", 32)];

impl Pieces {
    /// The index of the type in [`KINDS`]; a lower index is stronger.
    fn rank(&self) -> usize {
        KINDS.iter().position(|(kind, _)| *kind == self.kind).unwrap_or(KINDS.len())
    }
}

/// Why a document is not a usable Metalink.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MetalinkError {
    /// The document is longer than [`MAX_BYTES`].
    #[error("it has {0} bytes; a Metalink has at most {MAX_BYTES}")]
    TooLong(usize),
    /// The document is neither UTF-8 nor UTF-16, and is not declared to be ISO-8859-1.
    #[error("its encoding is not UTF-8, UTF-16 or (as declared) ISO-8859-1")]
    Encoding,
    /// The document is not well-formed XML.
    #[error("it is not XML (at byte {at}): {why}")]
    Syntax {
        /// The position, bytes.
        at: u64,
        /// The parser's message.
        why: String,
    },
    /// The document type has declarations. A Metalink does not need them, and they could define entities.
    #[error("its document type has declarations (<!DOCTYPE … […]>), which are not supported")]
    DocType,
    /// The document uses an entity that XML does not predefine.
    #[error("it uses the entity `&{0};`, which is not supported")]
    Entity(String),
    /// The root element is not a Metalink's.
    #[error("its root element is not <metalink xmlns=\"{NAMESPACE}\">")]
    Root,
    /// The document has more than [`MAX_FILES`] files.
    #[error("it lists more than {MAX_FILES} files")]
    TooManyFiles,
    /// A file has no name.
    #[error("one of its files has no name")]
    Nameless,
    /// A field is invalid.
    #[error("for the file `{file}`, the {what} `{text}` cannot be read")]
    Field {
        file: String,
        /// The name of the field.
        what: &'static str,
        /// The text of the field.
        text: String,
    },
    /// A file has two hashes of one type that differ.
    #[error("for the file `{0}`, it gives two different {1}")]
    TwoHashes(String, &'static str),
    /// The document has no file.
    #[error("it lists no file")]
    Empty,
}

impl File {
    /// The components of the name, made safe for use below any directory; at least one.
    ///
    /// RFC 5854 §4.1.2.1 allows directories in names and forbids names that leave the target directory. Empty
    /// components, `.` and `..` are dropped, so that an absolute name becomes a relative one. The others are made
    /// [safe](file_name::safe).
    ///
    /// # Errors
    /// [`MetalinkError::Field`] if no component is left, or there are more than 16.
    pub fn path(&self) -> Result<Vec<String>, MetalinkError> {
        let parts: Vec<String> = self.name.split('/').filter_map(file_name::safe).collect();
        if parts.is_empty() || parts.len() > MAX_DEPTH {
            let (file, text) = (self.name.clone(), self.name.clone());
            return Err(MetalinkError::Field { file, what: "name", text });
        }
        Ok(parts)
    }
}

/// Parses a document.
///
/// Unknown elements and attributes are ignored, as RFC 5854 §1.2 requires.
///
/// # Errors
/// [`MetalinkError`]; one error invalidates the whole document.
pub fn parse(document: &[u8]) -> Result<Vec<File>, MetalinkError> {
    if document.len() > MAX_BYTES {
        return Err(MetalinkError::TooLong(document.len()));
    }
    let text = text_encoding::decode(document).or_else(|| latin(document));
    let text = text.ok_or(MetalinkError::Encoding)?;
    let mut reader = NsReader::from_str(&text);
    let mut parser = Parser::default();
    loop {
        let at = reader.buffer_position();
        let syntax = |e: quick_xml::Error| MetalinkError::Syntax { at, why: e.to_string() };
        let (namespace, event) = reader.read_resolved_event().map_err(syntax)?;
        if matches!(event, Event::Eof) {
            return parser.finish(at);
        }
        parser.take(&namespace, &event, at)?;
    }
}

/// Decodes a document that is declared to be ISO-8859-1 (XML 1.0 §4.3.3); `None` if it is not.
fn latin(document: &[u8]) -> Option<Cow<'_, str>> {
    let (declaration, _) = document.split_at_checked(document.iter().position(|b| *b == b'>')?)?;
    let declaration = declaration.to_ascii_lowercase();
    let is_latin = declaration.starts_with(b"<?xml")
        && declaration.windows(10).any(|name| name == b"iso-8859-1");
    is_latin.then(|| document.iter().map(|b| char::from(*b)).collect())
}

/// The kinds of elements, by name and parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Root,
    /// Version 3 only: contains the files.
    Files,
    File,
    /// Version 3 only: contains a file's hashes.
    Verification,
    /// Version 3 only: contains a file's URLs.
    Resources,
    Size,
    Hash,
    /// Contains the hashes of pieces.
    Pieces,
    Piece,
    Url,
    Other,
}

#[derive(Default)]
struct Parser {
    /// The open elements, the root first. Their number is bounded by the document's length.
    open: Vec<Element>,
    seen_root: bool,
    is_version_3: bool,
    files: Vec<File>,
    /// The URLs of the open file, with their priorities.
    urls: Vec<(u32, String)>,
    /// The text of the open element.
    text: String,
    /// The piece hashes of the open `pieces` element; `None` if they are unusable.
    pieces: Option<Pieces>,
    /// The `type` of the open hash, pieces or URL.
    kind: String,
    /// The priority of the open URL.
    priority: u32,
}

impl Parser {
    fn take(
        &mut self,
        namespace: &ResolveResult<'_>,
        event: &Event<'_>,
        at: u64,
    ) -> Result<(), MetalinkError> {
        match event {
            Event::Start(element) => self.start(namespace, element, at)?,
            Event::Empty(element) => {
                self.start(namespace, element, at)?;
                self.end()?;
            }
            Event::End(_) => self.end()?,
            Event::Text(text) => self.text.push_str(&text.xml10_content()),
            Event::CData(text) => self.text.push_str(&text.xml10_content()),
            Event::GeneralRef(entity) => {
                let unknown = || MetalinkError::Entity(shortened(entity));
                match entity.resolve_char_ref().map_err(|_| unknown())? {
                    Some(c) => self.text.push(c),
                    None => {
                        let known = quick_xml::escape::resolve_xml_entity(entity);
                        self.text.push_str(known.ok_or_else(unknown)?);
                    }
                }
            }
            // Without declarations it only names a document type, which is not fetched.
            Event::DocType(kind) if kind.contains(['[', ']']) => {
                return Err(MetalinkError::DocType);
            }
            Event::DocType(_) => {}
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::Eof => {}
        }
        Ok(())
    }

    fn start(
        &mut self,
        namespace: &ResolveResult<'_>,
        element: &BytesStart<'_>,
        at: u64,
    ) -> Result<(), MetalinkError> {
        let is_in = |of: &str| matches!(namespace, ResolveResult::Bound(n) if n.0 == of);
        let local = element.local_name();
        if self.open.is_empty() && !self.seen_root {
            self.is_version_3 = is_in(NAMESPACE_3);
        }
        let is_ours = is_in(if self.is_version_3 { NAMESPACE_3 } else { NAMESPACE });
        let name = if is_ours { local.as_ref() } else { "" };
        let kind = self.kind_of(name)?;
        self.seen_root = true;
        self.open.push(kind);
        self.text.clear();
        match kind {
            Element::File => self.begin_file(element, at),
            Element::Hash => {
                self.kind = attribute(element, "type", at)?.unwrap_or_default();
                Ok(())
            }
            Element::Pieces => self.begin_pieces(element, at),
            Element::Piece => self.begin_piece(element, at),
            Element::Url if self.is_version_3 => self.begin_url_3(element, at),
            Element::Url => self.begin_url(element, at),
            _ => Ok(()),
        }
    }

    /// The kind of an element with this name in the open element; unknown elements are [`Element::Other`].
    fn kind_of(&mut self, name: &str) -> Result<Element, MetalinkError> {
        let kind = match (self.is_version_3, self.open.last(), name) {
            (_, None, "metalink") if !self.seen_root => Element::Root,
            (_, None, _) => return Err(MetalinkError::Root),
            (true, Some(Element::Root), "files") => Element::Files,
            (true, Some(Element::Files), "file") => Element::File,
            (true, Some(Element::File), "verification") => Element::Verification,
            (true, Some(Element::File), "resources") => Element::Resources,
            (true, Some(Element::Verification), "hash") => Element::Hash,
            (true, Some(Element::Resources), "url") => Element::Url,
            (false, Some(Element::Root), "file") => Element::File,
            (_, Some(Element::File), "size") => Element::Size,
            (false, Some(Element::File), "pieces") => Element::Pieces,
            (true, Some(Element::Verification), "pieces") => Element::Pieces,
            (_, Some(Element::Pieces), "hash") => Element::Piece,
            (false, Some(Element::File), "hash") => Element::Hash,
            (false, Some(Element::File), "url") => Element::Url,
            (false, Some(Element::File), "metaurl") => {
                self.file().skipped += 1;
                Element::Other
            }
            _ => Element::Other,
        };
        Ok(kind)
    }

    fn begin_file(&mut self, element: &BytesStart<'_>, at: u64) -> Result<(), MetalinkError> {
        if self.files.len() == MAX_FILES {
            return Err(MetalinkError::TooManyFiles);
        }
        let name = attribute(element, "name", at)?.ok_or(MetalinkError::Nameless)?;
        self.files.push(File { name, ..File::default() });
        Ok(())
    }

    fn begin_pieces(&mut self, element: &BytesStart<'_>, at: u64) -> Result<(), MetalinkError> {
        self.kind = attribute(element, "type", at)?.unwrap_or_default();
        let length = attribute(element, "length", at)?;
        let length = length.and_then(|text| text.trim().parse().ok()).filter(|n| *n > 0);
        let kind = KINDS.iter().find(|(kind, _)| *kind == plain_kind(&self.kind));
        let pieces = kind.zip(length);
        self.pieces = pieces.map(|((kind, _), length)| Pieces { kind, length, hashes: Vec::new() });
        Ok(())
    }

    /// In version 3 pieces have numbers, from 0; if one is missing, the hashes are unusable.
    fn begin_piece(&mut self, element: &BytesStart<'_>, at: u64) -> Result<(), MetalinkError> {
        let number = attribute(element, "piece", at)?;
        let is_next = |number: &str| {
            let count = self.pieces.as_ref().map_or(0, |pieces| pieces.hashes.len());
            number.trim().parse() == Ok(count)
        };
        if !number.as_deref().is_none_or(is_next) {
            self.pieces = None;
        }
        Ok(())
    }

    fn piece(&mut self, text: &str) {
        let Some(pieces) = &mut self.pieces else { return };
        let is_hash = text.len() == KINDS.get(pieces.rank()).map_or(0, |(_, digits)| *digits)
            && text.bytes().all(|b| b.is_ascii_hexdigit());
        match is_hash {
            true => pieces.hashes.push(text.to_owned()),
            false => self.pieces = None,
        }
    }

    fn end_pieces(&mut self) {
        let kind = std::mem::take(&mut self.kind);
        match self.pieces.take() {
            Some(found) if !found.hashes.is_empty() => {
                let known = self.file().pieces.as_ref().map_or(KINDS.len(), Pieces::rank);
                if found.rank() < known {
                    self.file().pieces = Some(found);
                }
            }
            _ => self.file().other_hashes.push(format!("{kind} of pieces")),
        }
    }

    /// RFC 5854 §4.2.16.1: the priority is 1 to 999999, the lowest first; a URL without one comes last.
    fn begin_url(&mut self, element: &BytesStart<'_>, at: u64) -> Result<(), MetalinkError> {
        self.priority = match attribute(element, "priority", at)? {
            None => LAST,
            Some(text) => {
                let number = text.trim().parse().ok().filter(|n| (1..=LAST).contains(n));
                number.ok_or_else(|| self.field("priority", &text))?
            }
        };
        Ok(())
    }

    /// Version 3: the preference is 0 to 100, the highest first; a URL without one comes last. The type says how to
    /// fetch the URL: an http URL may be that of a torrent file.
    fn begin_url_3(&mut self, element: &BytesStart<'_>, at: u64) -> Result<(), MetalinkError> {
        let preference = attribute(element, "preference", at)?;
        let preference = preference.and_then(|text| text.trim().parse::<u32>().ok());
        self.priority = preference.map_or(LAST, |n| LAST - 1 - n.min(100));
        self.kind = attribute(element, "type", at)?.unwrap_or_default();
        Ok(())
    }

    fn end(&mut self) -> Result<(), MetalinkError> {
        let text = std::mem::take(&mut self.text);
        match self.open.pop() {
            Some(Element::Size) => {
                let size = text.trim().parse().map_err(|_| self.field("size", &text))?;
                self.file().size = Some(size);
            }
            Some(Element::Hash) => self.hash(text.trim())?,
            Some(Element::Piece) => self.piece(text.trim()),
            Some(Element::Pieces) => self.end_pieces(),
            Some(Element::Url) => self.url(text.trim()),
            Some(Element::File) => {
                // The sort is stable: URLs of equal priority stay in document order.
                self.urls.sort_by_key(|(priority, _)| *priority);
                self.file().urls =
                    std::mem::take(&mut self.urls).into_iter().map(|u| u.1).collect();
            }
            _ => {}
        }
        Ok(())
    }

    fn hash(&mut self, text: &str) -> Result<(), MetalinkError> {
        let kind = std::mem::take(&mut self.kind);
        let file = self.file();
        let (name, put) = match plain_kind(&kind).as_str() {
            "sha512" => ("sha-512", put(&mut file.sha512, text)),
            "sha256" => ("sha-256", put(&mut file.sha256, text)),
            "sha1" => ("sha-1", put(&mut file.sha1, text)),
            "md5" => ("md5", put(&mut file.md5, text)),
            _ => ("", None),
        };
        match put {
            Some(true) => Ok(()),
            Some(false) => Err(MetalinkError::TwoHashes(shortened(&self.file().name), name)),
            // A malformed weak hash is ignored.
            None if matches!(name, "sha-256" | "sha-512") => Err(self.field(name, text)),
            None => {
                self.file().other_hashes.push(kind);
                Ok(())
            }
        }
    }

    fn url(&mut self, text: &str) {
        let kind = std::mem::take(&mut self.kind).to_ascii_lowercase();
        // RFC 3986 §4.2: a relative reference has no colon in its first segment.
        let first = text.split(['/', '?', '#']).next().unwrap_or_default();
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
        let is_relative = !text.is_empty() && !first.contains(':');
        let is_http_type = matches!(kind.as_str(), "" | "http" | "https");
        if (is_http || is_relative) && is_http_type && self.urls.len() < MAX_URLS {
            self.urls.push((self.priority, text.to_owned()));
        } else {
            self.file().skipped += 1;
        }
    }

    /// The open file. Its elements occur only inside it, so there is one.
    fn file(&mut self) -> &mut File {
        if self.files.is_empty() {
            self.files.push(File::default());
        }
        let last = self.files.len() - 1;
        &mut self.files[last]
    }

    fn field(&self, what: &'static str, text: &str) -> MetalinkError {
        let file = self.files.last().map_or("", |file| &file.name);
        MetalinkError::Field { file: shortened(file), what, text: shortened(text) }
    }

    fn finish(self, at: u64) -> Result<Vec<File>, MetalinkError> {
        if !self.open.is_empty() {
            return Err(MetalinkError::Syntax { at, why: "the document is incomplete".to_owned() });
        }
        match (self.seen_root, self.files.is_empty()) {
            (false, _) => Err(MetalinkError::Root),
            (true, true) => Err(MetalinkError::Empty),
            (true, false) => Ok(self.files),
        }
    }
}

fn attribute(
    element: &BytesStart<'_>,
    name: &str,
    at: u64,
) -> Result<Option<String>, MetalinkError> {
    let syntax = |why: String| MetalinkError::Syntax { at, why };
    for attribute in element.attributes() {
        let attribute = attribute.map_err(|e| syntax(e.to_string()))?;
        if attribute.key.as_ref() == name {
            let value = attribute.normalized_value(XmlVersion::Implicit1_0);
            return value.map(|v| Some(v.into_owned())).map_err(|e| syntax(e.to_string()));
        }
    }
    Ok(None)
}

/// Normalises the name of a hash: IANA's names have a hyphen, those of version 3 have none.
fn plain_kind(kind: &str) -> String {
    kind.to_ascii_lowercase().replace('-', "")
}

/// Stores a hash. Returns false if a different one was stored before, and `None` if the hash is malformed.
fn put<const N: usize>(place: &mut Option<[u8; N]>, text: &str) -> Option<bool> {
    let hash = hex(text)?;
    Some(place.replace(hash).is_none_or(|other| other == hash))
}

/// Decodes `N` bytes from hexadecimal digits of either case.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let hex = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
    hex.try_into().ok()
}

/// Truncates text for an error message.
fn shortened(text: &str) -> String {
    const MAX: usize = 80;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
