//! `thalweg stream` with real video: ffmpeg as source and as player. Skipped without ffmpeg.

use super::{
    ffmpeg_decoder,
    host::{Daemon, Host, text, until},
};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const SETTINGS: &str = "[stream]\nsubscribe = [\"*\"]\n";

/// A deadline that a busy machine meets.
const LATENCY: [&str; 2] = ["--latency", "20s"];

/// Options for [`video`]: one video; a ladder of two renditions with aligned key frames.
pub const ONE: &str = "-c:v libx264 -preset ultrafast -g 30 -bf 2 -c:a aac";
const LADDER: &str = "-filter_complex [0:v]split[a][b];[b]scale=160:90[c] -map [a] -map [c] -map 1:a \
    -c:v libx264 -preset ultrafast -g 30 -sc_threshold 0 -bf 2 -c:a aac";

/// A transport stream of `seconds` seconds, with 30 pictures a second. `None` without ffmpeg, with a message.
pub fn video(seconds: u32, options: &str) -> Option<Vec<u8>> {
    let source = format!(
        "-v error -nostdin -f lavfi -i testsrc2=s=320x180:r=30:d={seconds},format=yuv420p \
        -f lavfi -i sine=f=440:d={seconds}"
    );
    let mut command = Command::new("ffmpeg");
    command.args(source.split_whitespace()).args(options.split_whitespace());
    let output = command.args(["-f", "mpegts", "-"]).output().ok();
    let output = output.filter(|output| output.status.success());
    if output.is_none() {
        eprintln!("skipped: no ffmpeg with libx264 in the path");
    }
    output.map(|output| output.stdout)
}

/// Decodes all videos with ffmpeg. Returns the pictures of each, and the error messages.
pub fn decode(bytes: &[u8]) -> (Vec<usize>, String) {
    let (lines, errors) = ffmpeg_decoder::framemd5(bytes, "0:v");
    let streams = lines.lines().filter(|line| line.starts_with("#media_type")).count();
    let mut pictures = vec![0; streams];
    ffmpeg_decoder::frames(&lines).for_each(|stream| pictures[stream] += 1);
    (pictures, errors)
}

/// A running command, with the lines of its standard error; killed on drop.
pub struct Running {
    pub child: Child,
    errors: BufReader<std::process::ChildStderr>,
}

impl Running {
    pub fn start(host: &Host, args: &[&str]) -> Self {
        let mut command = host.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        Self { child, errors }
    }

    /// Reads up to the first line with this text.
    pub fn line(&mut self, with: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.errors.read_line(&mut line).unwrap() > 0, "no line with `{with}`");
            if line.contains(with) {
                return line;
            }
        }
    }

    /// The rest of its standard error.
    pub fn errors(&mut self) -> &mut impl std::io::Read {
        &mut self.errors
    }

    /// The address after this text in a line.
    pub fn address(&mut self, before: &str) -> SocketAddr {
        let line = self.line(before);
        let rest = line.split_once(before).unwrap().1;
        let end = rest.find(|c: char| !c.is_ascii_hexdigit() && !".:[]".contains(c));
        rest[..end.unwrap_or(rest.len())].parse().unwrap()
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Sends SIGINT and waits for the end.
    pub fn interrupt(mut self) {
        // `wait` would close the input, whose end is another reason to end.
        let _input = self.child.stdin.take();
        assert!(Command::new("kill").args(["-INT", &self.pid()]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(130));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Two hosts with daemons; the first one publishes.
fn hosts() -> (Host, Host, [Daemon; 2]) {
    let fra = Host::founder();
    let fra_runs = fra.start_with(SETTINGS, None);
    let ber = Host::relay(&fra, "ber", &[]);
    let ber_runs = ber.start();
    (fra, ber, [fra_runs, ber_runs])
}

fn is_listed(host: &Host) -> bool {
    host.ok(&["stream", "list"]).contains("stage")
}

/// Publishes a file at its own pace, and waits until the stream is listed.
fn publish(host: &Host, bytes: &[u8]) -> Running {
    fs::write(host.path("movie.ts"), bytes).unwrap();
    let args = ["stream", "publish", "stage", "movie.ts", "--pace"];
    let publisher = Running::start(host, &[&args[..], &LATENCY].concat());
    until("it is listed", || is_listed(host));
    publisher
}

/// The arguments of a subscription at `fra`.
fn subscribe<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["stream", "subscribe", "stage", "--from", "fra"], &LATENCY[..], more].concat()
}

#[test]
fn a_file_published_in_real_time_is_decoded_without_an_error() {
    let Some(bytes) = video(6, ONE) else { return };
    let (fra, ber, _runs) = hosts();
    let began = Instant::now();
    let mut publisher = publish(&fra, &bytes);
    let output = ber.run(&subscribe(&[]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (pictures, errors) = decode(&output.stdout);
    assert_eq!(errors, "");
    // Everything from a key frame on; the first groups may be over.
    assert!(pictures[0] >= 30 && pictures[0].is_multiple_of(30), "{pictures:?}");
    assert_eq!(publisher.child.wait().unwrap().code(), Some(0));
    assert!(began.elapsed() > Duration::from_secs(5), "faster than its pictures");
}

#[test]
fn consecutive_programs_deliver_and_receive_by_tcp() {
    let Some(bytes) = video(3, ONE) else { return };
    let (fra, ber, _runs) = hosts();
    let listen = ["stream", "publish", "stage", "--listen", "tcp://127.0.0.1:0"];
    let mut publisher = Running::start(&fra, &[&listen[..], &LATENCY].concat());
    let at = publisher.address("waiting for a program at tcp://");
    let player = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("tcp://{}", player.local_addr().unwrap());
    let subscriber = Running::start(&ber, &subscribe(&["--to", &to]));
    let mut reader = player.accept().unwrap().0;
    let received = std::thread::spawn(move || {
        let mut received = Vec::new();
        // The connection is reset when the subscriber is killed.
        _ = reader.read_to_end(&mut received);
        received
    });
    // The clock of the second program starts again, like that of a restarted encoder.
    for program in 0..2 {
        TcpStream::connect(at).unwrap().write_all(&bytes).unwrap();
        publisher.line("has disconnected");
        until("its frames have come", || {
            let status = ber.json(&["stream", "status", "--json"]);
            status["streams"][0]["came"][2].as_u64() >= Some(3 * (program + 1))
        });
    }
    until("they are written", || {
        let status = ber.json(&["stream", "status", "--json"]);
        status["streams"][0]["legs"][0]["queue_bytes"] == 0
    });
    subscriber.interrupt();
    let (pictures, errors) = decode(&received.join().unwrap());
    // The last picture of an input is complete at its end. The clock of the second input is lower.
    assert_eq!(pictures, [180], "{errors}");
    let errors: Vec<_> = errors.lines().filter(|line| !line.contains("DTS")).collect();
    assert!(errors.is_empty(), "{errors:?}");
    publisher.interrupt();
}

#[test]
fn programs_deliver_and_receive_by_udp() {
    let Some(bytes) = video(3, ONE) else { return };
    let (fra, ber, _runs) = hosts();
    let listen = ["stream", "publish", "stage", "--listen", "udp://127.0.0.1:0"];
    let mut publisher = Running::start(&fra, &[&listen[..], &LATENCY].concat());
    let at = publisher.address("waiting for datagrams at udp://");
    let player = UdpSocket::bind("127.0.0.1:0").unwrap();
    player.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let to = format!("udp://{}", player.local_addr().unwrap());
    let subscriber = Running::start(&ber, &subscribe(&["--to", &to]));
    until("it has subscribed", || {
        fra.json(&["stream", "status", "--json"])["streams"][0]["legs"][0]["to"] == "ber"
    });
    // ffmpeg sends at its own pace.
    fs::write(fra.path("movie.ts"), &bytes).unwrap();
    let mut source = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-re", "-i"])
        .arg(fra.path("movie.ts"))
        .args(["-map", "0", "-c", "copy", "-f", "mpegts"])
        .arg(format!("udp://{at}?pkt_size=1316"))
        .spawn()
        .unwrap();
    let (mut received, mut buffer, mut pictures) = (Vec::new(), vec![0; 2000], 0);
    while pictures < 60 {
        let read = player.recv(&mut buffer).unwrap();
        assert!(read <= 1316 && read.is_multiple_of(188), "{read}");
        received.extend_from_slice(&buffer[..read]);
        let starts = received.as_chunks::<188>().0.iter();
        // PES packets of the video, to which ffmpeg gives the first PID.
        let is_start = |packet: &&[u8; 188]| packet[1] & 0x5f == 0x41 && packet[2] == 0;
        pictures = starts.filter(is_start).count();
    }
    assert!(source.wait().unwrap().success());
    // The newest picture is not complete.
    let end = received.as_chunks::<188>().0.iter().rposition(|packet| packet[1..3] == [0x41, 0]);
    let (decoded, errors) = decode(&received[..188 * end.unwrap()]);
    assert!(decoded[0] >= 58 && errors.is_empty(), "{decoded:?} {errors}");
    subscriber.interrupt();
    publisher.interrupt();
}

#[test]
fn a_ladder_arrives_as_one_video_or_as_all() {
    let Some(bytes) = video(6, LADDER) else { return };
    let (fra, ber, _runs) = hosts();
    let mut publisher =
        Running::start(&fra, &[&["stream", "publish", "stage"], &LATENCY[..]].concat());
    let mut input = publisher.child.stdin.take().unwrap();
    let (first, rest) = bytes.split_at(bytes.len() / 3);
    input.write_all(first).unwrap();
    until("it is listed", || is_listed(&fra));
    let start = |rendition: &str| Running::start(&ber, &subscribe(&["--rendition", rendition]));
    let subscribers = ["auto", "1", "all"].map(start);
    until("all renditions are requested", || {
        let legs = fra.json(&["stream", "status", "--json"])["streams"][0]["legs"].clone();
        legs[0]["tracks"] == serde_json::json!([]) && legs[0]["gets"]["track"].is_null()
    });
    input.write_all(rest).unwrap();
    drop(input);
    let outputs = subscribers.map(|mut running| {
        let mut output = Vec::new();
        running.child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
        assert_eq!(running.child.wait().unwrap().code(), Some(0));
        output
    });
    for (output, renditions) in outputs.iter().zip([1, 1, 2]) {
        let (pictures, errors) = decode(output);
        assert_eq!((pictures.len(), errors.as_str()), (renditions, ""), "{pictures:?}");
        assert!(pictures.iter().all(|count| *count >= 90), "{pictures:?}");
    }
    let said = fra.fails(2, &["stream", "subscribe", "stage", "--rendition", "16"]);
    assert!(said.contains("is not a rendition"), "{said}");
}

#[test]
fn hls_is_served_and_written() {
    let Some(bytes) = video(6, ONE) else { return };
    let (fra, ber, _runs) = hosts();
    let _publisher = publish(&fra, &bytes);
    let mut server = Running::start(&ber, &subscribe(&["--hls", "127.0.0.1:0"]));
    let directory = Running::start(&ber, &subscribe(&["--hls-dir", "hls"]));
    let at = server.address("watch it at http://");
    server.line("the stream has ended");
    let play = |playlist: &str| {
        let mut command = Command::new("ffmpeg");
        command.args(["-v", "error", "-nostdin", "-live_start_index", "0", "-i", playlist]);
        let output = command.args(["-map", "0:v", "-f", "framemd5", "-"]).output().unwrap();
        assert!(output.stderr.is_empty(), "{playlist}: {}", text(&output.stderr));
        text(&output.stdout).lines().filter(|line| !line.starts_with('#')).count()
    };
    assert!(play(&format!("http://{at}/master.m3u8")) >= 60);
    let mut directory = directory;
    assert_eq!(directory.child.wait().unwrap().code(), Some(0));
    assert!(play(ber.path("hls/stream.m3u8").to_str().unwrap()) >= 60);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_full_disk_under_hls_ends_only_that_subscription() {
    let Some(bytes) = video(8, ONE) else { return };
    let (fra, ber, _runs) = hosts();
    let _publisher = publish(&fra, &bytes);
    let dir = ber.path("small");
    fs::create_dir(&dir).unwrap();
    // A separate file system in a separate namespace.
    let script = "mount -t tmpfs -o size=100k none \"$0\" || exit 99; exec \"$@\"";
    let command = ber.command(&subscribe(&["--hls-dir", dir.to_str().unwrap()]));
    let mut limited = Command::new("unshare");
    limited.args(["-rm", "sh", "-c", script]).arg(&dir).arg(command.get_program());
    limited.args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            limited.env(name, value);
        }
    }
    let other = Running::start(&ber, &subscribe(&[]));
    let output = limited.output().unwrap();
    if output.status.code() == Some(99) || text(&output.stderr).contains("unshare") {
        return eprintln!("skipped: no namespace: {}", text(&output.stderr));
    }
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("cannot write") && said.contains("free space"), "{said}");
    let mut other = other;
    let mut received = Vec::new();
    other.child.stdout.take().unwrap().read_to_end(&mut received).unwrap();
    let (pictures, errors) = decode(&received);
    assert!(pictures[0] >= 60 && errors.is_empty(), "{pictures:?} {errors}");
}

#[test]
fn damaged_input_is_named_and_the_rest_is_decoded() {
    let Some(bytes) = video(4, ONE) else { return };
    let (fra, ber, _runs) = hosts();
    // Bytes before the first packet, a packet cut short, a missing packet, and an end within a packet.
    let mut damaged = b"no transport stream".to_vec();
    let packets = bytes.as_chunks::<188>().0;
    let middle = packets.len() / 2;
    damaged.extend_from_slice(packets[..middle].as_flattened());
    damaged.extend_from_slice(&packets[middle][..100]);
    damaged.extend_from_slice(packets[middle + 2..packets.len() - 1].as_flattened());
    damaged.extend_from_slice(&packets[packets.len() - 1][..50]);
    let mut publisher = publish(&fra, &damaged);
    let output = ber.run(&subscribe(&[]));
    let (pictures, errors) = decode(&output.stdout);
    assert_eq!(errors, "");
    assert!((30..120).contains(&pictures[0]), "{pictures:?}");
    publisher.line("skipped 19 bytes that are not transport stream packets");
    publisher.line("video resumes at the next key frame");
}

#[test]
fn a_member_without_the_right_is_refused() {
    let fra = Host::founder();
    let _fra = fra.start();
    let ber = Host::relay(&fra, "ber", &[]);
    let _ber = ber.start();
    let publisher = Running::start(&fra, &["stream", "publish", "stage"]);
    until("it is listed", || is_listed(&fra));
    let mut command = ber.command(&subscribe(&[]));
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("`[stream] subscribe`"), "{}", text(&output.stderr));
    publisher.interrupt();
}

#[test]
fn a_rendition_transcoded_by_ffmpeg_is_decoded_without_an_error() {
    let Some(bytes) = video(12, "-c:v libx264 -preset ultrafast -g 30 -bf 0 -c:a aac") else {
        return;
    };
    let fra = Host::founder();
    let command = "ffmpeg -v error -probesize 50000 -copyts -i - -map 0:v -vf scale=160:90 -c:v libx264 \
        -preset ultrafast -tune zerolatency -force_key_frames source -mpegts_copyts 1 -f mpegts -";
    let words: Vec<String> = command.split_whitespace().map(|word| format!("{word:?}")).collect();
    let transcoder =
        format!("[[stream.transcoder]]\nof = \"stage\"\ncommand = [{}]\n", words.join(", "));
    let _fra = fra.start_with(&format!("{SETTINGS}{transcoder}"), None);
    let ber = Host::relay(&fra, "ber", &[]);
    let _ber = ber.start();
    let _publisher = publish(&fra, &bytes);
    until("it is made", || {
        let status = fra.json(&["stream", "status", "--json"]);
        let pictures = status["streams"][0]["rates"][1].as_array().cloned().unwrap_or_default();
        pictures.iter().skip(2).any(|bps| bps.as_u64() > Some(0))
    });
    let viewers: Vec<(&str, Running)> = [("320x180", "auto"), ("160x90", "1")]
        .map(|(size, rendition)| {
            (size, Running::start(&ber, &subscribe(&["--rendition", rendition])))
        })
        .into();
    for (size, mut viewer) in viewers {
        let mut output = Vec::new();
        viewer.child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
        let (lines, errors) = ffmpeg_decoder::framemd5(&output, "0:v");
        assert_eq!(errors, "", "{size}");
        assert!(lines.contains(size), "{lines}");
        let pictures = ffmpeg_decoder::frames(&lines).count();
        // At least a whole group; a busy machine produces few.
        assert!(pictures >= 30, "{size}: {pictures}");
    }
}
