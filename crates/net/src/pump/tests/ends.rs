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
        // Nothing is read from the client any more, and nothing is written to it.
        reset(c.client);
        assert!(matches!(c.pump.await.unwrap(), Err(Stopped::Broken(_))), "{how:?}");
        // It has had the end, so that only a write can tell it of the reset.
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
        // What is not acknowledged is thrown away by the reset: no more comes than passed.
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
async fn a_cut_while_nothing_moves_and_one_while_the_reader_sleeps() {
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
