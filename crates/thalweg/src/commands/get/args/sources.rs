//! Arguments of `thalweg get` about what is downloaded.

use super::ExpectedHashes;
use std::path::PathBuf;

/// URLs, lists of URLs, Metalinks.
#[derive(clap::Args)]
pub struct Sources {
    /// What to download: http:// and https:// URLs, Metalinks (.meta4), or `-` for a list on
    /// standard input
    #[arg(value_name = "URL", required_unless_present_any = ["input_file", "metalink"])]
    pub urls: Vec<String>,

    /// Read URLs from a file, or `-` for standard input: one per line, optionally followed by a tab
    /// and the name of the file; lines that begin with `#` are comments
    #[arg(short, long, value_name = "FILE")]
    pub input_file: Vec<PathBuf>,

    /// Download the files that this Metalink file or URL names
    #[arg(long, value_name = "FILE|URL")]
    pub metalink: Vec<String>,

    /// The same file on another server, used as a further path; needs --sha256 or --blake3
    #[arg(long, value_name = "URL")]
    pub mirror: Vec<String>,
}

impl Sources {
    /// Whether exactly one URL is given, and no list.
    fn is_one(&self) -> bool {
        let list = self.urls.iter().any(|url| url == "-") || !self.input_file.is_empty();
        let links = self.urls.iter().any(|url| is_metalink(url)) || !self.metalink.is_empty();
        self.urls.len() == 1 && !list && !links
    }

    /// Whether exactly one Metalink is given, and nothing else.
    pub fn is_one_metalink(&self) -> bool {
        let links = self.urls.iter().filter(|url| is_metalink(url)).count() + self.metalink.len();
        let others = self.urls.iter().any(|url| !is_metalink(url)) || !self.input_file.is_empty();
        links == 1 && !others
    }

    /// Checks that options for a single URL are given with a single URL, and that there are not more `outputs` than
    /// URLs.
    pub fn check(&self, outputs: usize, proof: &ExpectedHashes) -> anyhow::Result<()> {
        for (option, given) in [
            ("--mirror", !self.mirror.is_empty()),
            ("--sha256", proof.sha256.is_some()),
            ("--blake3", proof.blake3.is_some()),
        ] {
            if given && !self.is_one() {
                anyhow::bail!("{option} applies to one file: give exactly one URL with it");
            }
        }
        let stdin = self.urls.iter().filter(|url| *url == "-").count()
            + self.input_file.iter().filter(|file| file.as_os_str() == "-").count();
        if stdin > 1 {
            anyhow::bail!("standard input can be read only once: `-` is given {stdin} times");
        }
        let named = self.urls.iter().filter(|url| *url != "-" && !is_metalink(url)).count();
        let room = if self.is_one_metalink() { 1 } else { named };
        if outputs > room {
            anyhow::bail!(
                "-o is given {outputs} times for {named} URLs; in a list, write the file's name \
                 after its URL and a tab"
            );
        }
        Ok(())
    }
}

/// Whether the name ends as that of a Metalink.
pub fn is_metalink(text: &str) -> bool {
    let path = text.split(['?', '#']).next().unwrap_or(text).to_ascii_lowercase();
    path.ends_with(".meta4") || path.ends_with(".metalink")
}
