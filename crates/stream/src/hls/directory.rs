//! An HLS output as files, for a web server.

use super::{Packager, packager::Update};
use std::{
    io,
    path::{Path, PathBuf},
};
use thalweg_media::hls::Removed;
use thiserror::Error;
use tokio::fs;

/// The names of the playlists.
const PLAYLIST: &str = "stream.m3u8";
const MASTER: &str = "master.m3u8";

/// A file of the output cannot be written. The playlist names only complete segments.
#[derive(Debug, Error)]
#[error("cannot write {}: {why}{}", .file.display(), hint(.why))]
pub struct DirectoryError {
    /// The file.
    pub file: PathBuf,
    /// The cause.
    pub why: io::Error,
}

fn hint(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; the segments in stream.m3u8 are kept: free space and subscribe again"
        }
        _ => "",
    }
}

/// The directory of an HLS output. It holds the playlists and the newest segments.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Creates the directory if it is missing.
    ///
    /// # Errors
    /// When it cannot be created.
    pub async fn create(path: &Path) -> Result<Self, DirectoryError> {
        let created = fs::create_dir_all(path).await;
        created.map_err(|why| DirectoryError { file: path.to_owned(), why })?;
        Ok(Self { path: path.to_owned() })
    }

    /// Writes the new segments, then the playlists, and removes old segments.
    ///
    /// # Errors
    /// When a file cannot be written; its incomplete copy is removed.
    pub async fn apply(&self, update: Update, packager: &Packager) -> Result<(), DirectoryError> {
        for init in &update.inits {
            self.write(&init_name(init.number), &init.bytes).await?;
        }
        for segment in &update.segments {
            self.write(&segment_name(segment.number), &segment.bytes).await?;
        }
        for (name, text) in [(PLAYLIST, packager.playlist()), (MASTER, packager.master())] {
            if let Some(text) = text {
                self.write(name, text.as_bytes()).await?;
            }
        }
        self.remove(&update.removed).await;
        Ok(())
    }

    /// Writes a file under a temporary name and renames it, so that a reader sees it complete.
    async fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DirectoryError> {
        let (file, partial) = (self.path.join(name), self.path.join(format!(".{name}.partial")));
        let written = match fs::write(&partial, bytes).await {
            Ok(()) => fs::rename(&partial, &file).await,
            Err(why) => Err(why),
        };
        if let Err(why) = written {
            _ = fs::remove_file(&partial).await;
            return Err(DirectoryError { file, why });
        }
        Ok(())
    }

    async fn remove(&self, removed: &Removed) {
        let names = removed.segments.iter().map(|number| segment_name(*number));
        for name in names.chain(removed.inits.iter().map(|number| init_name(*number))) {
            // A file that somebody else has removed is no error.
            _ = fs::remove_file(self.path.join(name)).await;
        }
    }
}

fn segment_name(number: u64) -> String {
    format!("segment-{number}.m4s")
}

fn init_name(number: u64) -> String {
    format!("init-{number}.mp4")
}
