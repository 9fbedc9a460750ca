//! One object to one file, over several paths.
