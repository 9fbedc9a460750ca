//! Where the bytes of one download go: the file's name, its part, the output.

use super::{
    GetError, Halt, Target,
    flow::Identity,
    run::{Run, blocking},
    said::Said,
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

/// Few at a time create files: a directory lets in one, and threads that wait for it spin.
static CREATING: Semaphore = Semaphore::const_new(1);

/// A file is created within microseconds, unless there is much to compare or a server is far.
const PATIENCE: Duration = Duration::from_millis(5);

impl Run<'_> {
    /// The file that is made of an object at `url`; `None` if its bytes go to an output.
    ///
    /// # Errors
    /// If neither the server nor the URL names a file.
    pub(super) fn target(&self, said: &Said, url: &HttpUrl) -> Result<Option<PathBuf>, Halt> {
        match &self.request.target {
            Target::File(file) => Ok(Some(file.clone())),
            Target::Output(_) => Ok(None),
            Target::In(directory) => {
                let name = said.name.clone().map_or_else(|| url.file_name(), Ok);
                let name = name.map_err(|e| Halt::Failed(e.into()))?;
                Ok(Some(directory.join(name)))
            }
        }
    }

    /// The file as far as can be told before the server was asked.
    pub(super) fn likely_target(&self) -> Option<PathBuf> {
        self.target(&Said::default(), &self.request.url).ok().flatten()
    }

    /// Whether an object of this length is the expected one.
    ///
    /// # Errors
    /// [`GetError::Length`].
    pub(super) fn expect_length(&self, found: u64) -> Result<(), Halt> {
        match self.request.expected_length {
            Some(expected) if expected != found => {
                let file = self.request.file();
                Err(Halt::Failed(GetError::Length { file, expected, found }))
            }
            _ => Ok(()),
        }
    }

    /// Whether `target` is there already, complete, and of the version that `key` names; then
    /// there is nothing to do.
    ///
    /// # Errors
    /// If it is there and cannot be read.
    pub(super) async fn is_there(
        &mut self,
        target: Option<&PathBuf>,
        key: &PartKey,
    ) -> Result<bool, Halt> {
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

    /// Opens the part for `target`, or one without a name.
    ///
    /// # Errors
    /// [`GetError::Exists`] if the server chose the name of a file that is there; otherwise
    /// as [`Part::open`].
    pub(super) async fn open_part(
        &mut self,
        target: Option<PathBuf>,
        key: PartKey,
    ) -> Result<Part, Halt> {
        let chosen = matches!(self.request.target, Target::In(_));
        // Of an object that only comes whole, no rest can be asked for.
        let adopt = self.request.adopt && key.length().is_some();
        if self.request.adopt && !adopt && self.attempts == 1 {
            let why = "the server offers no ranges, so what is there cannot be gone on with";
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
                // Somebody else may have made it until we had the lock.
                if chosen && exists(&file) {
                    part.close()?;
                    return Ok(Err(file));
                }
                let adopted = if adopt { part.adopt()? } else { 0 };
                Ok(Ok((part, adopted)))
            }
        });
        let opened = {
            // Whoever has waited too long goes all the same.
            let _turn = timeout(PATIENCE, CREATING.acquire()).await;
            opened.await?
        };
        let opened = opened.map_err(|file| Halt::Failed(GetError::Exists(file)));
        let (part, adopted) = opened?;
        self.resumed.get_or_insert(part.resumed() + adopted);
        self.kept = part.durable();
        self.adopted = adopted;
        Ok(part)
    }

    /// The way to `part`, for bytes by the paths called `names`; with an output, also from there.
    ///
    /// # Errors
    /// If the system allows no further thread; [`GetError::Shown`].
    pub(super) fn store(
        &mut self,
        part: Part,
        names: Vec<String>,
        of: Identity,
    ) -> Result<Store, Halt> {
        let Some(flow) = &self.flow else { return Store::new(part, names) };
        if !part.key().digests().is_empty() || self.request.pieces.is_some() {
            // Nothing is shown before the whole is verified.
            return Store::new(part, names);
        }
        let reader = part.reader().map_err(|e| Halt::Failed(e.into()))?;
        let (store, prefix) = Store::followed(part, names)?;
        self.running = Some(flow.start(reader, prefix, of)?);
        Ok(store)
    }
}

/// Whether anything has this name, also a link that leads nowhere.
fn exists(file: &Path) -> bool {
    std::fs::symlink_metadata(file).is_ok()
}
