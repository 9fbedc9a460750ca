//! Tests of quotas and liveness on real connections.

use super::*;
use std::sync::atomic::AtomicUsize;
use thalweg_base::budget::{OverBudget, Scope};
use thalweg_units::ByteSize;

/// A quota that lets `left` bytes pass and then refuses, or waits for ever.
#[derive(Debug)]
struct Quota {
    left: AtomicUsize,
    holds: bool,
}

impl Throttle for Quota {
    fn take(&self, bytes: usize) -> ThrottleFuture<'_> {
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        Box::pin(async move {
            let asked = ByteSize::from_bytes(bytes as u64);
            match taken {
                Ok(_) => Ok(()),
                Err(_) if self.holds => pending().await,
                Err(_) => {
                    let none = ByteSize::ZERO;
                    Err(OverBudget { scope: Scope::ALL, limit: none, spent: none, asked })
                }
            }
        })
    }
}

fn quota(left: usize, holds: bool) -> Option<Arc<dyn Throttle>> {
    Some(Arc::new(Quota { left: AtomicUsize::new(left), holds }))
}

#[tokio::test]
async fn a_quota_that_is_used_up_resets_both_legs() {
    for how in ALL {
        let setup = Setup { throttle: quota(1_000_000, false), ..Setup::new(how) };
        let Carried { mut client, mut server, moved, pump, .. } = setup.start().await;
        let sender = tokio::spawn(async move {
            let chunk = pattern(100_000);
            while server.write_all(&chunk).await.is_ok() {}
        });
        let error = read_all(&mut client).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{how:?}");
        assert!(matches!(pump.await.unwrap(), Err(Stopped::Quota(_))), "{how:?}");
        sender.await.unwrap();
        let passed = moved.down.load(Ordering::Relaxed) as usize;
        assert!(passed <= 1_000_000 + THROTTLED_TURN, "{how:?}: {passed}");
    }
}

#[tokio::test]
async fn a_quota_that_waits_holds_back_one_direction_only() {
    for how in ALL {
        // The quota covers the first message, but not the second, after which nothing more may pass.
        let setup = Setup { throttle: quota(5, true), ..Setup::new(how) };
        let mut c = setup.start().await;
        for message in [b"first", b"other", b"third"] {
            c.client.write_all(message).await.unwrap();
        }
        let mut got = [0; 5];
        c.server.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"first", "{how:?}");
        // The other direction gets its own turn on credit.
        c.server.write_all(b"reply").await.unwrap();
        c.client.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"reply", "{how:?}");
        assert!(c.counts().0 <= 15 && c.counts().1 == 5, "{how:?}: {:?}", c.counts());
        c.cut.send(()).unwrap();
        assert!(matches!(c.pump.await.unwrap(), Err(Stopped::Cut)), "{how:?}");
    }
}

#[tokio::test]
async fn traffic_within_the_quota_passes_and_is_counted() {
    for how in ALL {
        let throttle = Arc::new(Quota { left: AtomicUsize::new(7_000_000), holds: false });
        let setup = Setup { throttle: Some(throttle.clone()), ..Setup::new(how) };
        let mut c = setup.start().await;
        let bytes = pattern(5_000_000);
        let (sent, got) = tokio::join!(
            async {
                c.client.write_all(&bytes).await.unwrap();
                c.client.shutdown().await.unwrap();
            },
            read_all(&mut c.server)
        );
        let () = sent;
        assert!(got.unwrap() == bytes, "{how:?}");
        drop(c.server);
        c.pump.await.unwrap().unwrap();
        assert_eq!(throttle.left.load(Ordering::Relaxed), 2_000_000, "{how:?}");
    }
}
