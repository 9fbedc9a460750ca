//! Reads the fields of a message from a slice, front to back.

use crate::signed::DecodeError;

/// The bytes that are not read yet.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Creates a reader of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Takes the next `n` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] with the number of missing bytes; nothing is taken.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) =
            self.0.split_at_checked(n).ok_or(DecodeError::Truncated(n - self.0.len().min(n)))?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes the next `N` bytes, as an array.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| DecodeError::Truncated(N))
    }

    /// Checks that all bytes have been read.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] with the number of bytes left.
    pub fn end(self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::TooLong(self.0.len())) }
    }
}
