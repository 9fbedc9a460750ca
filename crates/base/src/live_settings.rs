//! Settings that are replaced while a service runs.

use parking_lot::RwLock;
use std::sync::Arc;

/// Settings that a service reads often and that an operator replaces as a whole.
///
/// Each reader gets one complete version, and keeps it for as long as it works with it: a request is never served by half
/// of the old and half of the new settings.
#[derive(Debug, Default)]
pub struct LiveSettings<T>(RwLock<Arc<T>>);

impl<T> LiveSettings<T> {
    /// Begins with these settings.
    pub fn new(settings: T) -> Self {
        Self(RwLock::new(Arc::new(settings)))
    }

    /// The present settings.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read())
    }

    /// Replaces the settings for everything that begins from now on.
    pub fn set(&self, settings: T) {
        *self.0.write() = Arc::new(settings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_keeps_the_version_that_it_got() {
        let settings = LiveSettings::new((1, 1));
        let before = settings.get();
        settings.set((2, 2));
        assert_eq!((*before, *settings.get()), ((1, 1), (2, 2)));
    }
}
