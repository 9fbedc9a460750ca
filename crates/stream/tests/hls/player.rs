//! The player page in a real browser.

use crate::{
    browser::Browser,
    live::{Server, ladder},
};
use serde_json::Value;
use std::{
    path::Path,
    time::{Duration, Instant},
};
use thalweg_media::FrameClass;

/// The timeout of all waits, enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the page shows.
const STATE: &str = "({ time: video.currentTime, width: video.videoWidth, state: state.textContent, \
    error: video.error && video.error.message, figures: figures, rate: rate.textContent, \
    latency: latency.textContent, dropped: dropped.textContent, \
    decoded: video.getVideoPlaybackQuality().totalVideoFrames, \
    sound: video.webkitAudioDecodedByteCount })";

/// Polls the page until it fulfils the condition.
fn wait(browser: &mut Browser, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let state = browser.evaluate(STATE);
        let is_broken = !state["error"].is_null() || state["figures"]["errors"][0].is_string();
        assert!(!is_broken && browser.errors.is_empty(), "{state} {:?}", browser.errors);
        if is(&state) {
            return state;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {state}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_plays_across_drops_and_changes_of_the_rendition() {
    let dir = tempfile::TempDir::new().unwrap();
    let Some(mut browser) = Browser::start(dir.path()) else { return };
    let Some(frames) = ladder(20) else { return };
    let mut server = Server::start().await;
    server.feed(frames, |packager, frame| {
        let at = frame.time.as_millis();
        packager.select(u8::from((7000..12_000).contains(&at)));
        let is_dropped = match at {
            // A leg that lacks room drops disposable frames, then ends of groups.
            3000..4000 => frame.class == FrameClass::Disposable,
            4500..5000 => frame.class >= FrameClass::Reference,
            _ => false,
        };
        !is_dropped
    });
    let url = server.url.clone();
    let checked = tokio::task::spawn_blocking(move || {
        browser.open(&url);
        let at =
            |seconds: f64| move |state: &Value| state["time"].as_f64().is_some_and(|t| t > seconds);
        let width = |width: u64| move |state: &Value| state["width"] == width;
        wait(&mut browser, "it begins", at(1.0));
        wait(&mut browser, "the first rendition", width(640));
        let before = wait(&mut browser, "it plays across drops", at(5.5));
        assert_ne!(before["dropped"], "0", "{before}");
        wait(&mut browser, "the other rendition", width(320));
        let output = Path::new(env!("CARGO_TARGET_TMPDIR"));
        browser.screenshot("light", &output.join("player-light.png"));
        browser.screenshot("dark", &output.join("player-dark.png"));
        wait(&mut browser, "the first rendition again", width(640));
        let end = wait(&mut browser, "it plays to the end", at(18.0));
        assert_eq!(end["figures"]["switches"], 2, "{end}");
        assert!(end["rate"].as_str().is_some_and(|rate| rate.ends_with("Mbit/s")), "{end}");
        assert!(end["latency"].as_str().is_some_and(|latency| latency.ends_with(" s")), "{end}");
        wait(&mut browser, "it says that it has ended", |state| {
            state["state"] == "The stream has ended"
        })
    });
    let end = checked.await.unwrap();
    assert!(end["decoded"].as_u64().is_some_and(|n| n > 300), "{end}");
    assert!(end["sound"].as_u64().is_some_and(|bytes| bytes > 10_000), "sound is decoded: {end}");
}
