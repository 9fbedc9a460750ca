//! The items to download, in the order in which they are downloaded.

mod fallback;
mod list;
mod metalinks;

use super::{
    args::{Args, Output},
    exit::Code,
};
use std::{path::Path, sync::Arc};
use thalweg_part::{Digest, PieceDigests};
use thalweg_paths::url::{HttpUrl, UrlError};

pub use fallback::Fallback;
pub use metalinks::{Fetch, Fetched};

/// The most mirrors of one file that are used at the same time: each is a path of its own.
const MAX_MIRRORS: usize = 8;

/// An item to download, or why it cannot be downloaded.
pub struct Item {
    /// How the user named it: a URL, or a line of a list.
    pub text: String,
    pub kind: ItemKind,
    /// The list that names it, and the line number there.
    pub line: Option<(Arc<str>, usize)>,
}

/// The kind of an item. Small, because there may be many items: the rest is made when an item's turn comes.
pub enum ItemKind {
    /// A URL as written.
    Url(Output),
    /// A file of a Metalink, or one with mirrors or hashes.
    Wanted(Box<Wanted>),
    Mistake(String, Code),
}

/// A download with everything known about it.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub url: HttpUrl,
    /// The same file on other servers.
    pub mirrors: Vec<HttpUrl>,
    /// The expected hashes.
    pub digests: Vec<Digest>,
    /// The hashes of its pieces, if no hash of the whole file is known.
    pub pieces: Option<Arc<PieceDigests>>,
    /// Its size, if known from elsewhere.
    pub size: Option<u64>,
    /// Where it is written.
    pub output: Output,
    /// The URL of the Metalink that names it, if the Metalink was fetched.
    pub named_by: Option<HttpUrl>,
    /// The sources left if these fail.
    pub fallback: Fallback,
}

impl Wanted {
    /// Creates a download from `url` and `others`, further sources of the same file. With a hash, the sources are used
    /// together; without one, one after the other.
    fn of_sources(
        url: HttpUrl,
        others: impl IntoIterator<Item = HttpUrl>,
        digests: Vec<Digest>,
        output: Output,
    ) -> Self {
        let mut others = others.into_iter();
        let together = if digests.is_empty() { 0 } else { MAX_MIRRORS };
        let mirrors = others.by_ref().take(together).collect();
        let fallback = Fallback::new(others.collect());
        let (size, pieces, named_by) = (None, None, None);
        Self { url, mirrors, digests, pieces, size, output, named_by, fallback }
    }

    /// Whether a hash can prove that the received bytes are right.
    pub fn is_provable(&self) -> bool {
        !self.digests.is_empty() || self.pieces.is_some()
    }

    /// Whether its server may get the user's header fields and login. The user did not choose a server that a Metalink
    /// of another origin names, nor one that replaces another server.
    pub fn is_trusted(&self) -> bool {
        let is_own = |other: &HttpUrl| other.same_origin(&self.url);
        self.named_by.as_ref().is_none_or(is_own) && self.fallback.first_url().is_none_or(is_own)
    }
}

/// The items of a command line, with remarks.
#[derive(Default)]
pub struct FoundItems {
    /// The items, in order.
    pub items: Vec<Item>,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

impl Item {
    fn mistake(text: String, why: String, code: Code) -> Self {
        Self { text, kind: ItemKind::Mistake(why, code), line: None }
    }

    /// Adds the line number to a mistake.
    fn placed(&self, why: String) -> String {
        match &self.line {
            Some((list, number)) => format!("line {number} of {list}: {why}"),
            None => why,
        }
    }

    /// The download of this item.
    ///
    /// # Errors
    /// Why there is none, with the exit code.
    pub fn wanted(&self) -> Result<Wanted, (String, Code)> {
        match &self.kind {
            ItemKind::Mistake(why, code) => Err((why.clone(), *code)),
            ItemKind::Wanted(wanted) => Ok(Wanted::clone(wanted)),
            ItemKind::Url(output) => {
                let url = parse(&self.text).map_err(|why| (self.placed(why), Code::Usage))?;
                let (mirrors, digests) = (Vec::new(), Vec::new());
                let (pieces, size, output, named_by) = (None, None, output.clone(), None);
                let fallback = Fallback::default();
                Ok(Wanted { url, mirrors, digests, pieces, size, output, named_by, fallback })
            }
        }
    }
}

/// Parses a URL; the error is a message for the user.
fn parse(text: &str) -> Result<HttpUrl, String> {
    HttpUrl::parse(text).map_err(|e| match e {
        _ if !text.contains("://") && Path::new(text).is_file() => format!(
            "`{text}` is a file; --metalink {text} reads it as a Metalink, -i {text} as a list of \
             URLs"
        ),
        UrlError::Syntax(_) if !text.contains(':') => {
            format!("`{text}` is not a URL; one looks like https://example.org/file")
        }
        e => e.to_string(),
    })
}

/// Finds all items that the arguments name. `fetch` fetches Metalinks.
///
/// # Errors
/// If a list cannot be read, or an option for a single file is wrong; then no download begins.
pub async fn find(args: &Args, fetch: &Fetch<'_>) -> anyhow::Result<FoundItems> {
    let mut found = FoundItems::default();
    let (sources, naming) = (&args.sources, &args.naming);
    let mut nth = 0;
    for url in &sources.urls {
        if url == "-" {
            list::read("-".as_ref(), naming, &mut found)?;
        } else if super::args::is_metalink(url) {
            let link = metalinks::Link { link: url, naming, only: sources.is_one_metalink() };
            metalinks::read(link, fetch, &mut found).await?;
        } else {
            let output = naming.output_for(Some(nth));
            nth += 1;
            found.items.push(plain(args, url, output)?);
        }
    }
    for file in &sources.input_file {
        list::read(file, naming, &mut found)?;
    }
    for link in &sources.metalink {
        let link = metalinks::Link { link, naming, only: sources.is_one_metalink() };
        metalinks::read(link, fetch, &mut found).await?;
    }
    Ok(found)
}

/// An item for a URL of the command line, with the options for it.
fn plain(args: &Args, url: &str, output: Output) -> anyhow::Result<Item> {
    let digests = args.proof.digests()?;
    let mirrors = &args.sources.mirror;
    if !mirrors.is_empty() && digests.is_empty() {
        anyhow::bail!(
            "--mirror needs --sha256 or --blake3: without a hash it is unknown whether two servers \
             have the same file"
        );
    }
    let text = url.to_owned();
    if digests.is_empty() {
        return Ok(Item { text, kind: ItemKind::Url(output), line: None });
    }
    let mirrors: Result<Vec<HttpUrl>, _> = mirrors.iter().map(|m| parse(m)).collect();
    let mirrors = mirrors.map_err(|why| anyhow::anyhow!("--mirror: {why}"))?;
    let url = parse(url).map_err(anyhow::Error::msg)?;
    let (pieces, size, named_by, fallback) = (None, None, None, Fallback::default());
    let wanted = Wanted { url, mirrors, digests, pieces, size, output, named_by, fallback };
    Ok(Item { text, kind: ItemKind::Wanted(Box::new(wanted)), line: None })
}

/// An output with a name that others chose, below `directory`.
fn below(directory: &Path, name: &str) -> Result<Output, String> {
    let file = thalweg_wire::metalink::File { name: name.to_owned(), ..Default::default() };
    let parts = file.path().map_err(|_| format!("`{name}` is not a file name"))?;
    Ok(Output::Below(directory.to_owned(), parts.iter().collect()))
}
