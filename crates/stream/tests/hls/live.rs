//! A live stream out of ffmpeg's test picture.

use std::{
    process::{Command, Stdio},
    time::Duration,
};
use thalweg_media::{Frame, TsSplitter};
use thalweg_stream::hls::{Packager, Settings, Window, serve};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// Frames of two renditions, 640 by 360 and 320 by 180, with aligned key frames each second and disposable pictures;
/// `None` without ffmpeg.
pub fn ladder(seconds: u32) -> Option<Vec<Frame>> {
    let arguments = format!(
        "-hide_banner -v error -nostdin -f lavfi -i testsrc2=s=640x360:r=30:d={seconds} \
        -f lavfi -i sine=f=440:d={seconds} \
        -filter_complex [0:v]format=yuv420p,split[a][b];[b]scale=320:180[c] -map [a] -map [c] -map 1:a \
        -c:v libx264 -preset veryfast -g 30 -sc_threshold 0 -bf 2 -c:a aac -f mpegts -"
    );
    let output =
        Command::new("ffmpeg").args(arguments.split_whitespace()).stderr(Stdio::inherit()).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        eprintln!("skipped: no ffmpeg with libx264 in the path");
        return None;
    };
    let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
    splitter.push(&output.stdout, &mut frames);
    splitter.end(&mut frames);
    assert_eq!(splitter.take_warnings(), []);
    Some(frames)
}

/// A server, with the URL of its page.
pub struct Server {
    pub window: Window,
    pub url: String,
    tasks: JoinSet<()>,
}

impl Server {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (window, mut tasks) = (Window::default(), JoinSet::new());
        tasks.spawn(serve(listener, window.clone(), CancellationToken::new()));
        Self { window, url, tasks }
    }

    /// Packages frames at their own pace; `change` selects renditions, and drops the frames for which it returns false.
    pub fn feed(
        &mut self,
        frames: Vec<Frame>,
        mut change: impl FnMut(&mut Packager, &Frame) -> bool + Send + 'static,
    ) {
        let window = self.window.clone();
        self.tasks.spawn(async move {
            let mut packager = Packager::new(Settings::default(), "stage", "studio");
            let began = Instant::now();
            for (sequence, frame) in (0..).zip(&frames) {
                sleep_until(began + frame.time).await;
                let age = Duration::from_millis(20);
                if change(&mut packager, frame) {
                    let update = packager.push(sequence, age, frame);
                    window.apply(update, &packager);
                } else {
                    packager.record_loss(thalweg_wire::stream::leg::LostFrame {
                        sequence,
                        track: frame.track,
                        class: frame.class as u8,
                        why: thalweg_wire::stream::leg::DropReason::Room,
                    });
                }
            }
            let update = packager.end();
            window.apply(update, &packager);
            assert_eq!(packager.take_warnings(), []);
        });
    }
}
