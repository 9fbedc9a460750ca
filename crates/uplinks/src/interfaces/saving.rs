//! What is learnt of interfaces is kept in a file, every few seconds and at the end.

use super::{Uplinks, kept::Kept};
use std::{io, time::Duration};
use tokio::{task::spawn_blocking, time::sleep};

/// How often what came is added to the file: as long ago a crash forgets.
const SAVE: Duration = Duration::from_secs(5);

impl Uplinks {
    /// Gives back what was allotted and not moved, and saves; when nothing is moved any more.
    ///
    /// # Errors
    /// As [`Self::save`].
    pub fn end(&self) -> io::Result<()> {
        self.table().give_back_allotments(self.today());
        self.save()
    }

    pub(super) async fn save_again_and_again(&self) {
        loop {
            sleep(SAVE).await;
            let uplinks = self.clone();
            let saved = spawn_blocking(move || uplinks.save()).await;
            match saved.unwrap_or_else(|why| Err(io::Error::other(why))) {
                Ok(()) => self.0.faults.ends("save"),
                Err(why) => self.0.faults.begins("save", self.unsaved(&why)),
            }
        }
    }

    /// What to say when it cannot be kept.
    pub fn unsaved(&self, why: &io::Error) -> String {
        let file = self.0.file.as_deref().unwrap_or_else(|| "".as_ref());
        format!(
            "what was learnt of interfaces and programs is not kept in {}: {why}",
            file.display()
        )
    }

    /// Adds what came to the file, and takes in what other processes did; blocks until it is synced.
    ///
    /// # Errors
    /// The system's; then it is tried again the next time.
    pub fn save(&self) -> io::Result<()> {
        let Some(file) = &self.0.file else { return Ok(()) };
        let addition = self.table().take_addition();
        if addition.is_empty() {
            return Ok(());
        }
        match Kept::exchange(file, &addition) {
            Ok(kept) => {
                self.table().renew(kept);
                Ok(())
            }
            Err(why) => {
                self.table().give_back(addition);
                Err(why)
            }
        }
    }
}
