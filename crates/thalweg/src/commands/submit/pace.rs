//! Waiting as long as a node asks for.

use std::time::Duration;
use thalweg_console::note;
use thalweg_dropbox::{ClientError, PushError};
use thalweg_wire::bistro::Refusal;
use tokio::time::sleep;

/// The longest wait: a box's rate lets something in within ten seconds, and nobody is believed who says more.
const LONGEST: Duration = Duration::from_secs(30);

/// An error that may be a node's wish to be asked later.
pub trait Paced {
    /// What it says no with.
    fn refusal(&self) -> Option<&Refusal>;
}

impl Paced for ClientError {
    fn refusal(&self) -> Option<&Refusal> {
        if let Self::Refused(refusal) = self { Some(refusal) } else { None }
    }
}

impl Paced for PushError {
    fn refusal(&self) -> Option<&Refusal> {
        if let Self::Refused(refusal) = self { Some(refusal) } else { None }
    }
}

/// How long to wait, if that is all that is asked for; it is said.
pub fn wait(error: &impl Paced) -> Option<Duration> {
    let Some(Refusal::Slower(ms)) = error.refusal() else { return None };
    let wait = Duration::from_millis(u64::from(*ms)).clamp(Duration::from_millis(10), LONGEST);
    let seconds = wait.as_secs_f64();
    note!("thalweg: many requests come from this address: waiting {seconds:.1} s, then again");
    Some(wait)
}

/// Asks until the answer is another one than that it was too often; Ctrl-C ends it, and so does
/// the deadline, which is another answer.
pub async fn patiently<T, E: Paced, F: Future<Output = Result<T, E>>>(
    mut ask: impl FnMut() -> F,
) -> Result<T, E> {
    loop {
        match ask().await {
            Err(e) => match wait(&e) {
                Some(wait) => sleep(wait).await,
                None => return Err(e),
            },
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_is_told_to_come_later_does() {
        let mut answers = vec![
            Err(ClientError::Refused(Refusal::Full)),
            Err(ClientError::Refused(Refusal::Slower(u32::MAX))),
            Ok(7),
            Err(ClientError::Refused(Refusal::Slower(500))),
        ];
        let since = tokio::time::Instant::now();
        let mut ask = || std::future::ready(answers.pop().unwrap());
        assert_eq!(patiently(&mut ask).await.unwrap(), 7);
        assert_eq!(since.elapsed(), Duration::from_millis(500));
        assert!(matches!(patiently(&mut ask).await, Err(ClientError::Refused(Refusal::Full))));
        // However long somebody says.
        assert_eq!(since.elapsed(), Duration::from_millis(500) + LONGEST);
    }
}
