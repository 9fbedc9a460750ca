//! Options of `thalweg get` about names and directories of files.

use std::path::{Path, PathBuf};

/// Names and places of files.
#[derive(clap::Args)]
#[command(next_help_heading = "Files")]
pub struct Naming {
    /// Write to this file, `-` for standard output [default: the last part of the URL]; with
    /// several URLs the first -o is for the first URL, and so on
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,

    /// Name the file after the last part of the URL (the default; accepted as for curl)
    #[arg(short = 'O', long)]
    remote_name: bool,

    /// Use the name that the server gives (Content-Disposition), but never replace a file
    #[arg(short = 'J', long, conflicts_with = "output")]
    remote_header_name: bool,

    /// Put files into this directory; created if missing
    #[arg(short = 'P', long = "dir", value_name = "DIR", visible_alias = "output-dir")]
    dir: Option<PathBuf>,

    /// Continue a file that another program left; needs --sha256 or --blake3. The only value is
    /// `-`. Interrupted downloads of thalweg are always continued
    #[arg(short = 'C', long = "continue-at", value_name = "-", value_parser = dash)]
    continue_at: Option<Dash>,
}

/// The only value of `-C`.
#[derive(Clone, Copy, Debug)]
pub struct Dash;

fn dash(text: &str) -> Result<Dash, String> {
    match text {
        "-" => Ok(Dash),
        _ => Err("only `-` is accepted: the size of the existing file is the offset".into()),
    }
}

/// Where the bytes of a download go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Stdout,
    File(PathBuf),
    /// To the file with the second path below the first one. Others chose the second path, so no links are followed.
    Below(PathBuf, PathBuf),
    /// To a file in this directory, with the name that the server gives.
    Named(PathBuf),
    /// To a file in this directory, with the name in the URL.
    Url(PathBuf),
}

impl Naming {
    /// The number of names given.
    pub fn outputs(&self) -> usize {
        if self.is_stdout() && self.output.len() == 1 { 0 } else { self.output.len() }
    }

    /// The first name given, for the only file of a Metalink.
    pub fn only(&self) -> Option<Output> {
        let file = self.output.first().filter(|_| !self.is_stdout())?;
        Some(Output::File(self.directory().join(file)))
    }

    /// Whether bytes go to standard output.
    pub fn is_stdout(&self) -> bool {
        let names = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
        self.output.iter().any(|output| names.iter().any(|name| output.as_os_str() == *name))
    }

    /// Whether a file that another program left is continued.
    pub fn adopts(&self) -> bool {
        self.continue_at.is_some()
    }

    /// Checks that the names fit together.
    ///
    /// # Errors
    /// If standard output is one of several outputs, or a name is that of a directory.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.is_stdout() && self.output.len() > 1 {
            anyhow::bail!("`-o -` applies to all URLs and cannot be combined with another -o");
        }
        if self.is_stdout() && self.adopts() {
            anyhow::bail!("-C continues a file, but `-o -` writes none");
        }
        let is_directory = |file: &&PathBuf| {
            file.as_os_str().as_encoded_bytes().ends_with(b"/")
                || self.directory().join(file).is_dir()
        };
        if let Some(directory) = self.output.iter().find(is_directory) {
            let directory = directory.display();
            anyhow::bail!(
                "`-o {directory}`: -o takes the name of a file, and this is a directory; \
                 -P {directory} puts files into it"
            );
        }
        Ok(())
    }

    /// The directory of all files.
    pub fn directory(&self) -> &Path {
        self.dir.as_deref().unwrap_or(Path::new(""))
    }

    /// Where the `nth` URL of the command line goes, counted from 0; `None`: a URL of a list.
    pub fn output_for(&self, nth: Option<usize>) -> Output {
        let given = nth.and_then(|nth| self.output.get(nth));
        match given {
            _ if self.is_stdout() => Output::Stdout,
            Some(file) => Output::File(self.directory().join(file)),
            None if self.remote_header_name => Output::Named(self.directory().to_owned()),
            None => Output::Url(self.directory().to_owned()),
        }
    }

    /// Creates the directory.
    ///
    /// # Errors
    /// As the system reports them.
    pub fn make_directory(&self) -> anyhow::Result<()> {
        use anyhow::Context as _;
        let Some(dir) = &self.dir else { return Ok(()) };
        std::fs::create_dir_all(dir)
            .with_context(|| format!("cannot create the directory {}", dir.display()))
    }
}
