//! Metalinks: reads or fetches them, and makes items of their files.

use super::{FoundItems, Item, ItemKind, Wanted, below, parse};
use crate::commands::get::{
    args::{Naming, Output},
    exit::Code,
};
use std::{fs::File, future::Future, io, io::Read as _, pin::Pin, sync::Arc};
use thalweg_part::{Digest, PieceDigests};
use thalweg_paths::url::HttpUrl;
use thalweg_wire::metalink::{self, MAX_BYTES};

/// A fetched document, or why it could not be fetched.
pub type Fetched = Result<Vec<u8>, (String, Code)>;

/// Fetches a document of at most [`MAX_BYTES`].
pub type Fetch<'a> = dyn Fn(&str) -> Pin<Box<dyn Future<Output = Fetched> + 'a>> + 'a;

/// A Metalink, and how its files are named.
#[derive(Clone, Copy)]
pub struct Link<'a> {
    /// A path or a URL.
    pub link: &'a str,
    /// The user's options about names.
    pub naming: &'a Naming,
    /// Whether nothing else is downloaded, so that `-o` names its file.
    pub only: bool,
}

/// Adds the files of a Metalink to `found`. A faulty Metalink becomes an item that fails, so that other downloads
/// continue.
///
/// # Errors
/// If one name is given and there are several files.
pub async fn read(from: Link<'_>, fetch: &Fetch<'_>, found: &mut FoundItems) -> anyhow::Result<()> {
    let Link { link, naming, only } = from;
    let document = match link.contains("://") {
        true => fetch(link).await,
        false => {
            local(link).map_err(|e| (format!("cannot read the Metalink {link}: {e}"), Code::Usage))
        }
    };
    let wrong = |e: metalink::MetalinkError| (format!("the Metalink {link}: {e}"), Code::Other);
    match document.and_then(|document| metalink::parse(&document).map_err(wrong)) {
        Ok(files) => {
            let named = naming.only().filter(|_| only);
            if named.is_some() && files.len() > 1 {
                anyhow::bail!("-o names one file, and {link} has {}: use -P DIR", files.len());
            }
            files.into_iter().for_each(|file| {
                let item = item(link, file, naming, named.as_ref(), &mut found.notes);
                found.items.push(item);
            });
        }
        Err((why, code)) => found.items.push(Item::mistake(link.to_owned(), why, code)),
    }
    Ok(())
}

fn local(file: &str) -> io::Result<Vec<u8>> {
    let mut document = Vec::new();
    // One byte more, so that the parser reports that it is too long.
    File::open(file)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut document)?;
    Ok(document)
}

fn item(
    link: &str,
    file: metalink::File,
    naming: &Naming,
    named: Option<&Output>,
    notes: &mut Vec<String>,
) -> Item {
    let name = file.name.escape_debug().to_string();
    notes.extend(remarks(&file).map(|note| format!("{name} in {link}: {note}")));
    let text = format!("{name} in {link}");
    // The path of a local file has no `://`.
    let named_by = link.contains("://").then(|| parse(link).ok()).flatten();
    match wanted(&file, naming, named, named_by) {
        Ok(wanted) => Item { text, kind: ItemKind::Wanted(Box::new(wanted)), line: None },
        Err(why) => Item::mistake(text, format!("{name} in {link}: {why}"), Code::Other),
    }
}

/// Remarks about parts of the Metalink that are not used.
fn remarks(file: &metalink::File) -> impl Iterator<Item = String> {
    let is_unproven = digests(file).is_empty();
    let hashes = (is_unproven && file.pieces.is_none() && !file.other_hashes.is_empty()).then(|| {
        let others = file.other_hashes.join(", ");
        format!(
            "its hashes ({others}) are ignored: unsupported or malformed (supported: sha-512, sha-256, sha-1, md5)"
        )
    });
    let single = (is_unproven && file.urls.len() > 1)
        .then(|| "without a hash of the whole file its mirrors are used one at a time".to_owned());
    hashes.into_iter().chain(single)
}

/// The strongest hashes of the whole file.
fn digests(file: &metalink::File) -> Vec<Digest> {
    let strong = [file.sha256.map(Digest::Sha256), file.sha512.map(Digest::Sha512)];
    let strong: Vec<Digest> = strong.into_iter().flatten().collect();
    let weak = || file.sha1.map(Digest::Sha1).or(file.md5.map(Digest::Md5)).into_iter().collect();
    if strong.is_empty() { weak() } else { strong }
}

/// The hashes of its pieces, which are used if there is no hash of the whole file.
fn pieces(file: &metalink::File) -> Option<Arc<PieceDigests>> {
    let pieces = file.pieces.as_ref().filter(|_| digests(file).is_empty())?;
    let digests = pieces.hashes.iter().map(|hex| format!("{}:{hex}", pieces.kind).parse());
    let digests = digests.collect::<Result<_, _>>().ok()?;
    Some(Arc::new(PieceDigests { length: pieces.length, digests }))
}

fn wanted(
    file: &metalink::File,
    naming: &Naming,
    named: Option<&Output>,
    named_by: Option<HttpUrl>,
) -> Result<Wanted, String> {
    let output = match (naming.output_for(None), named) {
        (Output::Stdout, _) => Output::Stdout,
        (_, Some(named)) => named.clone(),
        _ => below(naming.directory(), &file.name)?,
    };
    // A mirror that is no valid URL is left out: RFC 5854 allows for unusable mirrors.
    let absolute = |url: &String| match &named_by {
        Some(by) if !url.contains("://") => {
            by.join(url).ok().and_then(|u| parse(&u.to_string()).ok())
        }
        _ => parse(url).ok(),
    };
    let urls: Vec<HttpUrl> = file.urls.iter().filter_map(absolute).collect();
    let mut urls = urls.into_iter();
    let url = urls.next().ok_or("no http or https URL is given for the file")?;
    let (digests, pieces, size) = (digests(file), pieces(file), file.size);
    Ok(Wanted { size, pieces, named_by, ..Wanted::of_sources(url, urls, digests, output) })
}
