//! Keeps the bytes that measurements cost today in a file.

use parking_lot::Mutex;
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};
use thalweg_base::durable;

/// The longest file, bytes: two numbers of any day fit.
const LONGEST: usize = 64;

/// The day's number since 1970, and its bytes.
type Count = (u64, u64);

/// Writes the newest count on a thread of its own, and once more when dropped.
#[derive(Debug)]
pub(super) struct SavedCount {
    shared: Arc<CountWriter>,
    wake: SyncSender<()>,
}

#[derive(Debug)]
struct CountWriter {
    file: PathBuf,
    /// The count that has not been written yet.
    newest: Mutex<Option<Count>>,
    /// Held while the file is written.
    turn: Mutex<()>,
}

/// The count in this file; `None` if there is no file.
///
/// # Errors
/// The system's, and `InvalidData` if the file holds no count.
pub(super) fn read(file: &Path) -> io::Result<Option<Count>> {
    let Some(bytes) = durable::read(file, LONGEST)? else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes);
    let parsed = text
        .trim_end()
        .split_once(' ')
        .and_then(|(day, bytes)| Some((day.parse::<u64>().ok()?, bytes.parse::<u64>().ok()?)));
    let wrong = || {
        let what = format!(
            "{} does not contain a valid count of today's measurement bytes; the count restarts at zero",
            file.display()
        );
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    parsed.map(Some).ok_or_else(wrong)
}

impl SavedCount {
    /// Starts the thread; `failed` is called with the first of several failures in a row.
    pub fn start(file: PathBuf, failed: impl Fn(io::Error) + Send + 'static) -> Self {
        // One is enough: a second message before the thread looks would ask for the same.
        let (wake, woken) = sync_channel(1);
        let shared = Arc::new(CountWriter { file, newest: Mutex::new(None), turn: Mutex::new(()) });
        let own = Arc::clone(&shared);
        // Without a thread the count is written when this is dropped.
        _ = thread::Builder::new()
            .name("measured".to_owned())
            .spawn(move || own.write_all(&woken, failed));
        Self { shared, wake }
    }

    /// Sets the count. Does not wait for the disk.
    pub fn put(&self, day: u64, bytes: u64) {
        *self.shared.newest.lock() = Some((day, bytes));
        // If it is full, the thread is about to look.
        _ = self.wake.try_send(());
    }
}

impl Drop for SavedCount {
    fn drop(&mut self) {
        // A failure can no longer be reported to anybody.
        _ = self.shared.write();
    }
}

impl CountWriter {
    fn write_all(&self, woken: &Receiver<()>, failed: impl Fn(io::Error)) {
        let mut is_failing = false;
        while woken.recv().is_ok() {
            let done = self.write();
            let was_failing = std::mem::replace(&mut is_failing, done.is_err());
            if let (Err(error), false) = (done, was_failing) {
                failed(error);
            }
        }
    }

    fn write(&self) -> io::Result<()> {
        let _turn = self.turn.lock();
        let newest = self.newest.lock().take();
        let Some((day, bytes)) = newest else { return Ok(()) };
        durable::replace(&self.file, format!("{day} {bytes}\n").as_bytes())
    }
}
