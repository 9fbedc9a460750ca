//! Waits as long as a node asks for.

use std::time::Duration;
use thalweg_console::note;
use thalweg_dropbox::{ClientError, PushError};
use thalweg_wire::bistro::Refusal;
use tokio::time::sleep;

/// The longest wait: at any box's rate, a request is accepted within ten seconds; longer waits are not honoured.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// An error that may be a node's request to retry later.
pub trait RetryRequest {
    /// The refusal, if the error is one.
    fn refusal(&self) -> Option<&Refusal>;
}

impl RetryRequest for ClientError {
    fn refusal(&self) -> Option<&Refusal> {
        if let Self::Refused(refusal) = self { Some(refusal) } else { None }
    }
}

impl RetryRequest for PushError {
    fn refusal(&self) -> Option<&Refusal> {
        if let Self::Refused(refusal) = self { Some(refusal) } else { None }
    }
}

/// How long to wait, if the error only asks for that. Prints that it waits.
pub fn retry_delay(error: &impl RetryRequest) -> Option<Duration> {
    let Some(Refusal::Slower(ms)) = error.refusal() else { return None };
    let wait = Duration::from_millis(u64::from(*ms)).clamp(Duration::from_millis(10), MAX_WAIT);
    let seconds = wait.as_secs_f64();
    note!("thalweg: many requests come from this address: waiting {seconds:.1} s, then again");
    Some(wait)
}

/// Repeats a request until the answer is no longer a request to wait. Ctrl-C ends it, and so does the deadline, which
/// is another answer.
pub async fn retry_when_asked<T, E: RetryRequest, F: Future<Output = Result<T, E>>>(
    mut ask: impl FnMut() -> F,
) -> Result<T, E> {
    loop {
        match ask().await {
            Err(e) => match retry_delay(&e) {
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
    async fn a_request_is_repeated_after_the_wait_that_was_asked_for() {
        let mut answers = vec![
            Err(ClientError::Refused(Refusal::Full)),
            Err(ClientError::Refused(Refusal::Slower(u32::MAX))),
            Ok(7),
            Err(ClientError::Refused(Refusal::Slower(500))),
        ];
        let since = tokio::time::Instant::now();
        let mut ask = || std::future::ready(answers.pop().unwrap());
        assert_eq!(retry_when_asked(&mut ask).await.unwrap(), 7);
        assert_eq!(since.elapsed(), Duration::from_millis(500));
        assert!(matches!(
            retry_when_asked(&mut ask).await,
            Err(ClientError::Refused(Refusal::Full))
        ));
        // The wait is limited, whatever the node asks for.
        assert_eq!(since.elapsed(), Duration::from_millis(500) + MAX_WAIT);
    }
}
