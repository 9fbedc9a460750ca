//! How connections end: either side first, by reset, by a cut.

use super::{flow::fill_up, *};

#[tokio::test]
async fn the_client_speaks_and_ends_first() {
    for how in ALL {
        let mut c = Carried::by(how).await;
        c.client.write_all(b"question").await.unwrap();
        c.client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut c.server).await.unwrap(), b"question", "{how:?}");
        c.server.write_all(b"late answer").await.unwrap();
        drop(c.server);
        assert_eq!(read_all(&mut c.client).await.unwrap(), b"late answer", "{how:?}");
        c.pump.await.unwrap().unwrap();
        let moved = [&c.moved.up, &c.moved.down].map(|n| n.load(Ordering::Relaxed));
        assert_eq!(moved, [8, 11], "{how:?}");
    }
}

#[tokio::test]
async fn the_server_speaks_and_ends_first() {
    for how in ALL {
        let mut c = Carried::by(how).await;
        c.server.write_all(b"greeting").await.unwrap();
        c.server.shutdown().await.unwrap();
        assert_eq!(read_all(&mut c.client).await.unwrap(), b"greeting", "{how:?}");
        c.client.write_all(b"late thanks").await.unwrap();
        drop(c.client);
        assert_eq!(read_all(&mut c.server).await.unwrap(), b"late thanks", "{how:?}");
        c.pump.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn bytes_that_were_read_early_come_first() {
    for how in [How::Spliced, How::Copied] {
        let early = pattern(300_000);
        let mut c = Setup { early: early.clone(), ..Setup::new(how) }.start().await;
        c.client.write_all(b"and the rest").await.unwrap();
        c.client.shutdown().await.unwrap();
        let expected = [&early[..], b"and the rest"].concat();
        assert!(read_all(&mut c.server).await.unwrap() == expected, "{how:?}");
        assert_eq!(c.counts(), (300_012, 0), "{how:?}");
    }
}

#[tokio::test]
async fn a_reset_of_either_leg_resets_the_other() {
    for how in ALL {
        let mut c = Carried::by(how).await;
        c.server.write_all(b"half of it").await.unwrap();
        c.client.read_exact(&mut [0; 10]).await.unwrap();
        reset(c.server);
        let error = read_all(&mut c.client).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{how:?}");
        assert!(matches!(c.pump.await.unwrap(), Err(Stopped::Broken(_))), "{how:?}");

        let mut c = Carried::by(how).await;
        c.client.write_all(b"half of it").await.unwrap();
        c.server.read_exact(&mut [0; 10]).await.unwrap();
        reset(c.client);
        let error = read_all(&mut c.server).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{how:?}");
        assert!(matches!(c.pump.await.unwrap(), Err(Stopped::Broken(_))), "{how:?}");
    }
}

#[tokio::test]
async fn a_reset_that_follows_the_end_of_its_direction_is_noticed() {
    for how in ALL {
        let limits = Limits { black_hole: Duration::from_millis(40), ..LIMITS };
        let mut c = Setup { limits, ..Setup::new(how) }.start().await;
        c.client.shutdown().await.unwrap();
        assert!(read_all(&mut c.server).await.unwrap().is_empty(), "{how:?}");
        // The pump no longer reads from the client, and has nothing to write to it.
        reset(c.client);
        assert!(matches!(c.pump.await.unwrap(), Err(Stopped::Broken(_))), "{how:?}");
        // The server has received the end already, so only a write can tell it of the reset.
        assert!(c.server.write_all(b"too late").await.is_err(), "{how:?}");
    }
}

#[tokio::test]
async fn a_cut_resets_both_legs_amid_a_flow() {
    for how in ALL {
        let Carried { mut client, mut server, moved, pipes, cut, pump } = Carried::by(how).await;
        let sender = tokio::spawn(async move {
            let chunk = pattern(100_000);
            while server.write_all(&chunk).await.is_ok() {}
        });
        client.read_exact(&mut vec![0; 3_000_000]).await.unwrap();
        cut.send(()).unwrap();
        assert!(matches!(pump.await.unwrap(), Err(Stopped::Cut)), "{how:?}");
        let passed_on = moved.down.load(Ordering::Relaxed);
        // The reset discards unacknowledged bytes, so the client gets at most the bytes that were passed on.
        let mut rest = Vec::new();
        let error = client.read_to_end(&mut rest).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{how:?}");
        assert!(3_000_000 + rest.len() as u64 <= passed_on, "{how:?}");
        sender.await.unwrap();
        assert_eq!(moved.down.load(Ordering::Relaxed), passed_on, "{how:?}");
        assert_eq!(pipes.lent(), 0, "{how:?}");
    }
}

#[tokio::test]
async fn a_cut_works_on_an_idle_connection_and_while_the_reader_sleeps() {
    for how in ALL {
        let Carried { mut client, mut server, cut, pump, .. } = Carried::by(how).await;
        cut.send(()).unwrap();
        assert!(matches!(pump.await.unwrap(), Err(Stopped::Cut)), "{how:?}");
        for far in [&mut client, &mut server] {
            let error = read_all(far).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{how:?}");
        }

        let Carried { mut client, server, cut, pump, pipes, .. } = Carried::by(how).await;
        fill_up(&client).await;
        cut.send(()).unwrap();
        assert!(matches!(pump.await.unwrap(), Err(Stopped::Cut)), "{how:?}");
        assert!(client.write_all(b"more").await.is_err(), "{how:?}");
        assert_eq!(pipes.lent(), 0, "{how:?}");
        drop(server);
    }
}

/// The server answers and closes in the middle of an upload. This is a reset, because bytes are unread.
#[tokio::test]
async fn the_answer_of_a_destination_that_closed_reaches_a_client_that_is_still_sending() {
    for how in ALL {
        for size in [10, 2_000_000] {
            let Carried { mut client, mut server, moved, pump, cut: _cut, .. } =
                Carried::by(how).await;
            let answer = pattern(size);
            let said = answer.clone();
            let serving = tokio::spawn(async move {
                server.read_exact(&mut [0; 1]).await.unwrap();
                server.write_all(&said).await.unwrap();
                while moved.down.load(Ordering::Relaxed) < size as u64 {
                    tokio::task::yield_now().await;
                }
            });
            let chunk = vec![7; 1 << 20];
            let (mut from, mut to) = client.split();
            // Writing fails once the reset has come this far.
            let uploading = async { while to.write_all(&chunk).await.is_ok() {} };
            let reading = async {
                serving.await.unwrap();
                let mut got = Vec::new();
                (from.read_to_end(&mut got).await, got)
            };
            let (_, (ended, got)) = tokio::join!(uploading, reading);
            assert!(got == answer, "{how:?}: {} of {size} bytes, then {ended:?}", got.len());
            assert!(matches!(pump.await.unwrap(), Err(Stopped::Broken(_))), "{how:?}");
        }
    }
}

/// The client gets the last bytes and then an error, never a clean end.
#[tokio::test]
async fn a_reset_by_the_destination_never_looks_like_a_clean_end() {
    for how in ALL {
        let Carried { mut client, mut server, pump, cut: _cut, .. } = Carried::by(how).await;
        server.write_all(&[7; 1000]).await.unwrap();
        reset(server);
        let mut got = Vec::new();
        let ended = client.read_to_end(&mut got).await;
        assert!(ended.is_err(), "{how:?}: {} bytes, then an end", got.len());
        assert!(matches!(pump.await.unwrap(), Err(Stopped::Broken(_))), "{how:?}");
    }
}
