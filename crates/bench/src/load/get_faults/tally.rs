//! Sets up the trials of an arm and counts their failures.

use super::{
    download::{EndedDownload, Order},
    watch::{AllowedContents, FileWatch, Observations, is_temporary},
};
use crate::load::report::Report;
use anyhow::Context as _;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The content of the older file with the final name.
const OLD: &[u8] = b"what was there before";

/// The directory of one download, and the contents that may be seen under its final name.
pub struct FaultTrial {
    /// The arguments of the download.
    pub order: Order,
    directory: PathBuf,
    allowed: AllowedContents,
    watch: Option<FileWatch>,
}

impl FaultTrial {
    /// Creates a directory below `place` with an older file under the final name, which only the `right` content may
    /// replace.
    ///
    /// # Errors
    /// When the directory cannot be created or watched.
    pub fn new(
        place: &Path,
        name: &str,
        url: &str,
        right: &[Arc<Vec<u8>>],
        args: &[String],
    ) -> anyhow::Result<Self> {
        let directory = place.join(name);
        fs::create_dir_all(&directory)?;
        let file = directory.join("file.bin");
        fs::write(&file, OLD)?;
        let allowed = AllowedContents { old: Some(OLD.to_vec()), right: right.to_vec() };
        let watch = Some(FileWatch::start(&file, allowed.clone())?);
        let history = place.join(format!("{name}.history"));
        let order = Order { url: url.to_owned(), file, history, args: args.to_vec() };
        Ok(Self { order, directory, allowed, watch })
    }

    /// Whether the file has the last right content.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_complete(&self) -> anyhow::Result<bool> {
        let right = self.allowed.right.last().context("there is no expected content")?;
        Ok(fs::read(&self.order.file)? == **right)
    }

    /// Whether the file still has the old content.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_untouched(&self) -> anyhow::Result<bool> {
        Ok(fs::read(&self.order.file)? == OLD)
    }

    /// The directory's path.
    pub fn place(&self) -> String {
        self.directory.display().to_string()
    }

    /// The temporary file of the download's data.
    pub fn part(&self) -> PathBuf {
        self.directory.join(".file.bin.thalweg-part")
    }

    /// The number of temporary files.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn temporary(&self) -> anyhow::Result<u64> {
        let mut n = 0;
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            n += u64::from(is_temporary(&name, "file.bin"));
        }
        Ok(n)
    }

    fn end_watch(&mut self) -> anyhow::Result<Observations> {
        self.watch.take().map_or_else(|| Ok(Observations::default()), FileWatch::end)
    }
}

/// Counts over all trials.
#[derive(Debug, Default)]
pub struct TrialTally {
    trials: u64,
    looks: u64,
    wrong: u64,
    litter: u64,
    exits: u64,
}

impl TrialTally {
    /// Checks a download that must have ended with its file and exit code 0.
    ///
    /// # Errors
    /// When files cannot be read.
    pub fn expect_success(
        &mut self,
        trial: &FaultTrial,
        ended: &EndedDownload,
        what: &str,
    ) -> anyhow::Result<()> {
        self.expect_code(ended, &[0], what);
        if ended.code() == 0 && !trial.is_complete()? {
            self.print_failure(
                what,
                "the download reported success, but the file has wrong content",
            );
            self.wrong += 1;
        }
        let litter = trial.temporary()?;
        if ended.code() == 0 && litter > 0 {
            self.print_failure(what, &format!("{litter} temporary files are left"));
            self.litter += litter;
        }
        Ok(())
    }

    /// Checks an exit code.
    pub fn expect_code(&mut self, ended: &EndedDownload, wanted: &[i32], what: &str) {
        if !wanted.contains(&ended.code()) {
            let (code, words) = (ended.code(), ended.last_error());
            self.print_failure(what, &format!("exit code {code} instead of {wanted:?}: {words}"));
            self.exits += 1;
        }
    }

    /// Counts a failure.
    pub fn count_failure(&mut self, what: &str, why: &str) {
        self.print_failure(what, why);
        self.wrong += 1;
    }

    /// Ends a trial and removes its directory.
    ///
    /// # Errors
    /// When the watch failed or the directory cannot be removed.
    pub fn end(&mut self, mut trial: FaultTrial, what: &str) -> anyhow::Result<()> {
        let seen = trial.end_watch()?;
        self.trials += 1;
        self.looks += seen.looks;
        self.wrong += seen.wrong.len() as u64;
        seen.wrong.iter().for_each(|why| self.print_failure(what, why));
        Ok(fs::remove_dir_all(&trial.directory)?)
    }

    fn print_failure(&self, what: &str, why: &str) {
        thalweg_console::note!("{what}: {why}");
    }

    /// Adds the counts to the report.
    pub fn report(&self, report: &mut Report) {
        report.add("trials", "1", self.trials as f64);
        report.add("looks", "1", self.looks as f64);
        report.add("wrong", "1", self.wrong as f64);
        report.add("litter", "1", self.litter as f64);
        report.add("exit_codes_wrong", "1", self.exits as f64);
    }
}
