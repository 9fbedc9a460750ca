//! Relays that fall silent without closing anything.

use crate::{
    races::{FixedChooser, direct, way},
    scene::{Origin, Scene, ok, text},
    slow_path::SlowPath,
};
use std::sync::Arc;

#[tokio::test]
async fn a_request_on_an_idle_link_goes_another_way_when_its_relay_is_silent() {
    let origin = Origin::new().await;
    let relay = SlowPath::relay(origin.at, 1 << 30).await;
    let ways = vec![way("fra", relay.at, 0), direct(600_000)];
    let chooser = Arc::new(FixedChooser { ways, ..FixedChooser::default() });
    let scene = Scene::choosing(chooser.clone()).await;
    let mut program = scene.program().await;
    program.send(origin.get("/1", "")).await;
    let mut by_relay = origin.accept().await;
    by_relay.head().await;
    by_relay.send(ok("1")).await;
    program.answer().await;

    relay.fall_silent();
    program.send(origin.get("/2", "")).await;
    let mut directly = origin.accept().await;
    assert!(directly.head().await.starts_with("GET /2 "));
    directly.send(ok("2")).await;
    assert_eq!(text(program.answer().await.1), "2");
    assert_eq!(*chooser.told.lock().unwrap(), ["failed fra"]);

    // A request that is not safe is not sent twice: it goes by the link that lives.
    program.send(origin.ask("POST", "/3", "Content-Length: 1\r\n") + "x").await;
    assert!(directly.head().await.starts_with("POST /3 "));
    directly.send(ok("3")).await;
    assert_eq!(text(program.answer().await.1), "3");
}
