//! The destination of a download: the file's name, its part, the output.

use super::{
    AttemptError, GetError, Target,
    metadata::Metadata,
    output::ObjectIdentity,
    run::{Run, blocking},
    store::Store,
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use thalweg_base::job::{Event, Job, Kind};
use thalweg_part::{Part, PartKey, is_published_as};
use thalweg_paths::url::HttpUrl;
use tokio::{sync::Semaphore, time::timeout};

/// Limits how many downloads create files at once: a directory admits one at a time, and threads that wait for it spin.
static CREATING: Semaphore = Semaphore::const_new(1);

/// The longest wait for [`CREATING`]. Creating a file takes microseconds, unless there is much to compare or the file
/// server is far away.
const PATIENCE: Duration = Duration::from_millis(5);

impl Run<'_> {
    /// The target file of an object at `url`; `None` if its bytes go to an output.
    ///
    /// # Errors
    /// If the server gives no file name and the URL contains none.
    pub(super) fn target(
        &self,
        metadata: &Metadata,
        url: &HttpUrl,
    ) -> Result<Option<PathBuf>, AttemptError> {
        match &self.request.target {
            Target::File(file) => Ok(Some(file.clone())),
            Target::Output(_) => Ok(None),
            Target::In(directory) => {
                let name = metadata.name.clone().map_or_else(|| url.file_name(), Ok);
                let name = name.map_err(|e| AttemptError::Failed(e.into()))?;
                Ok(Some(directory.join(name)))
            }
        }
    }

    /// The likely target file, before the server was asked.
    pub(super) fn likely_target(&self) -> Option<PathBuf> {
        self.target(&Metadata::default(), &self.request.url).ok().flatten()
    }

    /// Checks the length of the object against the expected length.
    ///
    /// # Errors
    /// [`GetError::Length`].
    pub(super) fn expect_length(&self, found: u64) -> Result<(), AttemptError> {
        match self.request.expected_length {
            Some(expected) if expected != found => {
                let file = self.request.file();
                Err(AttemptError::Failed(GetError::Length { file, expected, found }))
            }
            _ => Ok(()),
        }
    }

    /// Whether `target` already exists, complete and of the version that `key` names. There is then nothing to do.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub(super) async fn is_there(
        &mut self,
        target: Option<&PathBuf>,
        key: &PartKey,
    ) -> Result<bool, AttemptError> {
        let Some(target) = target.filter(|target| exists(target)).cloned() else {
            return Ok(false);
        };
        let (key, pieces) = (key.clone(), self.request.pieces.clone());
        let is_right = move |target: &Path| match &pieces {
            Some(pieces) => pieces.are_of(target),
            None => Ok(true),
        };
        let found = blocking(move || match is_published_as(&target, &key)? && is_right(&target)? {
            true => Ok(std::fs::metadata(&target).ok().map(|found| (target, found.len()))),
            false => Ok(None),
        });
        self.published = found.await?;
        Ok(self.published.is_some())
    }

    /// Opens the part for `target`, or an unnamed part if there is no target file.
    ///
    /// # Errors
    /// [`GetError::Exists`] if the server chose the name and a file of that name exists; otherwise as [`Part::open`].
    pub(super) async fn open_part(
        &mut self,
        target: Option<PathBuf>,
        key: PartKey,
    ) -> Result<Part, AttemptError> {
        let chosen = matches!(self.request.target, Target::In(_));
        // If the object is only sent whole, the rest of a file cannot be requested.
        let adopt = self.request.adopt && key.length().is_some();
        if self.request.adopt && !adopt && self.attempts == 1 {
            let why =
                "the server does not support ranges, so the existing file cannot be continued";
            self.sink.event(&Event::Restarted { why: why.to_owned() });
        }
        let batch = self.request.batch;
        let shown = target.as_deref().unwrap_or(Path::new("-")).display().to_string();
        let job = Job::begin(Kind::Get, self.request.url.to_string(), shown);
        let opened = blocking(move || match target {
            None => Part::unnamed(None, key, job).map(|part| Ok((part, 0))),
            Some(file) if chosen && exists(&file) => Ok(Err(file)),
            Some(file) => {
                let mut part = Part::open(&file, key, job, batch)?;
                // Another process may have created the file before we obtained the lock.
                if chosen && exists(&file) {
                    part.close()?;
                    return Ok(Err(file));
                }
                let adopted = if adopt { part.adopt()? } else { 0 };
                Ok(Ok((part, adopted)))
            }
        });
        let opened = {
            // After the longest wait, it is created without the permit.
            let _turn = timeout(PATIENCE, CREATING.acquire()).await;
            opened.await?
        };
        let opened = opened.map_err(|file| AttemptError::Failed(GetError::Exists(file)));
        let (part, adopted) = opened?;
        self.resumed.get_or_insert(part.resumed() + adopted);
        self.kept = part.durable();
        self.adopted = adopted;
        Ok(part)
    }

    /// Creates the store for `part`, whose bytes come over the paths called `names`. If there is an output, it is
    /// started too and reads from the part.
    ///
    /// # Errors
    /// If the part cannot be read, the output does not want this version, or the system allows no further thread.
    pub(super) fn store(
        &mut self,
        part: Part,
        names: Vec<String>,
        of: ObjectIdentity,
    ) -> Result<Store, AttemptError> {
        let Some(flow) = &self.flow else { return Store::new(part, names) };
        if !part.key().digests().is_empty() || self.request.pieces.is_some() {
            // With digests, nothing is written to the output before the whole is verified.
            return Store::new(part, names);
        }
        let reader = part.reader().map_err(|e| AttemptError::Failed(e.into()))?;
        let (store, prefix) = Store::followed(part, names)?;
        self.running = Some(flow.start(reader, prefix, of)?);
        Ok(store)
    }
}

/// Whether a directory entry with this name exists, including a dangling symbolic link.
fn exists(file: &Path) -> bool {
    std::fs::symlink_metadata(file).is_ok()
}
