//! An HLS output as files, for a web server.

use super::{
    Packager,
    packager::{StartNumbers, Update},
};
use std::{
    io,
    path::{Path, PathBuf},
};
use thalweg_media::hls::ExpiredSegments;
use thiserror::Error;
use tokio::fs;

/// The names of the playlists.
const PLAYLIST: &str = "stream.m3u8";
const MASTER: &str = "master.m3u8";

const DISCONTINUITY_SEQUENCE: &str = "#EXT-X-DISCONTINUITY-SEQUENCE:";

/// The longest playlist of an earlier output that is read, bytes: an output's own is far shorter.
const MAX_PLAYLIST: u64 = 1 << 20;

/// The highest number of an earlier output that is continued, so that numbers go on from it without an overflow.
const MAX_NUMBER: u64 = u32::MAX as u64;

/// A file of the output cannot be written. The playlist names only complete segments.
#[derive(Debug, Error)]
#[error("cannot write {}: {why}{}", .file.display(), hint(.why))]
pub struct DirectoryError {
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
    start: StartNumbers,
    /// Files of an earlier output, which no player needs after the first playlist of this one.
    stale: Vec<String>,
}

impl Directory {
    /// Creates the directory if it is missing, and finds files of an earlier output in it.
    ///
    /// # Errors
    /// When it cannot be created or read.
    pub async fn create(path: &Path) -> Result<Self, DirectoryError> {
        let error = |why| DirectoryError { file: path.to_owned(), why };
        fs::create_dir_all(path).await.map_err(error)?;
        let earlier = EarlierOutput::read(path).await.map_err(error)?;
        Ok(Self { path: path.to_owned(), start: earlier.next_numbers(), stale: earlier.stale() })
    }

    /// The numbers after those of an earlier output, because a playlist's numbers must not go back (RFC 8216, 6.2.2).
    pub fn start(&self) -> StartNumbers {
        self.start
    }

    /// Writes the new segments, then the playlists, and removes old segments.
    ///
    /// # Errors
    /// When a file cannot be written; its incomplete copy is removed.
    pub async fn apply(
        &mut self,
        update: Update,
        packager: &Packager,
    ) -> Result<(), DirectoryError> {
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
        if packager.playlist().is_some() {
            for name in std::mem::take(&mut self.stale) {
                _ = fs::remove_file(self.path.join(name)).await;
            }
        }
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

    async fn remove(&self, removed: &ExpiredSegments) {
        let names = removed.segments.iter().map(|number| segment_name(*number));
        for name in names.chain(removed.inits.iter().map(|number| init_name(*number))) {
            // A file that somebody else has removed is no error.
            _ = fs::remove_file(self.path.join(name)).await;
        }
    }
}

/// The files of an earlier output in a directory.
#[derive(Debug, Default)]
struct EarlierOutput {
    segments: Vec<u64>,
    inits: Vec<u64>,
    /// Incomplete files.
    partial: Vec<String>,
    /// The highest number of its segments by its playlist; `None`: the files may not be an output of this program.
    last: Option<u64>,
    discontinuities: u64,
}

impl EarlierOutput {
    async fn read(path: &Path) -> io::Result<Self> {
        let mut earlier = Self::default();
        let mut entries = fs::read_dir(path).await?;
        while let Some(entry) = entries.next_entry().await? {
            let is_file = entry.file_type().await.is_ok_and(|kind| kind.is_file());
            if let Some(name) = entry.file_name().to_str().filter(|_| is_file) {
                earlier.add(name);
            }
        }
        let playlist = path.join(PLAYLIST);
        if fs::metadata(&playlist).await.is_ok_and(|about| about.len() <= MAX_PLAYLIST)
            && let Ok(text) = fs::read_to_string(&playlist).await
        {
            earlier.read_playlist(&text);
        }
        Ok(earlier)
    }

    fn add(&mut self, name: &str) {
        let complete = name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".partial"));
        let (segment, init) = numbers(complete.unwrap_or(name));
        let is_own = segment.or(init).is_some() || matches!(complete, Some(PLAYLIST | MASTER));
        if complete.is_some() && is_own {
            self.partial.push(name.to_owned());
        } else {
            self.segments.extend(segment);
            self.inits.extend(init);
        }
    }

    fn read_playlist(&mut self, text: &str) {
        self.last = text.lines().filter_map(|line| numbers(line).0).max();
        // Segments whose playlist could not be written, for example because the disk was full.
        while let Some(last) = self.last
            && self.segments.contains(&(last + 1))
        {
            self.last = Some(last + 1);
        }
        let before = text.lines().find_map(|line| line.strip_prefix(DISCONTINUITY_SEQUENCE));
        let before = before.and_then(|number| number.trim().parse().ok()).unwrap_or(0_u64);
        let marks = text.lines().filter(|line| line.trim() == "#EXT-X-DISCONTINUITY").count();
        self.discontinuities = before.saturating_add(marks as u64 + 1).min(MAX_NUMBER);
    }

    fn next_numbers(&self) -> StartNumbers {
        let after = |numbers: &[u64]| numbers.iter().max().map_or(0, |last| last + 1);
        let segment = after(&self.segments).max(self.last.map_or(0, |last| last + 1));
        StartNumbers { segment, init: after(&self.inits), discontinuities: self.discontinuities }
    }

    /// The files to remove: those that the output with the playlist has made.
    fn stale(self) -> Vec<String> {
        let mut stale = self.partial;
        if let Some(last) = self.last {
            let segments = self.segments.into_iter().filter(|number| *number <= last);
            stale.extend(segments.map(segment_name));
            stale.extend(self.inits.into_iter().map(init_name));
        }
        stale
    }
}

/// The number in the name of a media segment, or of an init segment.
fn numbers(name: &str) -> (Option<u64>, Option<u64>) {
    let number = |prefix: &str, suffix: &str| {
        let text = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
        // As this program writes it: no sign and no zeros before it.
        let number = text.parse().ok().filter(|number: &u64| number.to_string() == text)?;
        (number <= MAX_NUMBER).then_some(number)
    };
    (number("segment-", ".m4s"), number("init-", ".mp4"))
}

fn segment_name(number: u64) -> String {
    format!("segment-{number}.m4s")
}

fn init_name(number: u64) -> String {
    format!("init-{number}.mp4")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn earlier(names: &[&str], playlist: &str) -> EarlierOutput {
        let mut earlier = EarlierOutput::default();
        names.iter().for_each(|name| earlier.add(name));
        earlier.read_playlist(playlist);
        earlier
    }

    #[test]
    fn the_files_of_an_earlier_output_are_known_by_its_playlist() {
        let names = [
            "segment-7.m4s",
            "segment-8.m4s",
            "segment-9.m4s",
            "segment-11.m4s",
            "init-1.mp4",
            ".segment-9.m4s.partial",
            ".stream.m3u8.partial",
            "segment-07.m4s",
            "segment-+1.m4s",
            "segment-99999999999999999999.m4s",
            "segment-18446744073709551615.m4s",
            "movie.mp4",
            ".other.partial",
        ];
        let playlist = "#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:7\n#EXT-X-DISCONTINUITY-SEQUENCE:2\n\
            segment-7.m4s\n#EXT-X-DISCONTINUITY\nsegment-8.m4s\n";
        let found = earlier(&names, playlist);
        assert_eq!(found.next_numbers(), StartNumbers { segment: 12, init: 2, discontinuities: 4 });
        let mut stale = found.stale();
        stale.sort();
        // Number 9 follows those in the playlist. Number 11 is somebody else's.
        assert_eq!(
            stale,
            [
                ".segment-9.m4s.partial",
                ".stream.m3u8.partial",
                "init-1.mp4",
                "segment-7.m4s",
                "segment-8.m4s",
                "segment-9.m4s"
            ]
        );
        // Somebody else's playlist.
        let found = earlier(&["segment-7.m4s", "init-1.mp4"], "#EXTM3U\nmovie0.ts\n");
        assert_eq!((found.next_numbers().segment, found.stale()), (8, vec![]));
    }
}
