//! Step 2, at the node: receives a client's data into the spool.

use super::{Spool, admission::PushPermit, client_reader::ClientReader};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    time::Duration,
};
use thalweg_base::message;
use thalweg_base::timeout::within;
use thalweg_wire::{
    Signed,
    bistro::{CommitmentHasher, Nonce, ReceiptDelivery, Refusal, Stamp, StampId, SubmitReply},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    task::spawn_blocking,
};

/// The number of bytes read before they are hashed and written: enough to keep the disk busy.
const CHUNK: usize = 1 << 20;

/// How long the rest of a client's data is read and discarded after an early reply, so that the client reads the reply.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// A push that the node accepts.
pub(crate) struct Push {
    /// Checked: the stamp is the destination's, of this box, and of the client on the channel.
    pub stamp: Signed<Stamp>,
    /// The nonce of the commitment, as the client gives it.
    pub nonce: Nonce,
}

/// The file that receives a client's data, and the hash of its bytes so far.
struct Sink {
    file: File,
    committing: CommitmentHasher,
}

/// Receives the data of a stamp, and answers.
///
/// # Errors
/// Returns the connection's error: received data is kept, and the client resumes there.
pub(crate) async fn push<IO>(spool: &Spool, channel: &mut IO, push: Push) -> io::Result<()>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let id = StampId::from_stamp(&push.stamp);
    let said = push.stamp.value();
    let (size, client) = (said.commitment.size, said.client);
    if let Some(denial) = spool.denial(&id) {
        return message::write(channel, &SubmitReply::Denied(denial)).await;
    }
    if let Some(receipt) = spool.receipt(&id) {
        return message::write(channel, &SubmitReply::Receipt(receipt)).await;
    }
    let opened = match spool.admit(id, client, size) {
        Ok(permit) => open(spool, id, &push)
            .await
            .map(|sink| (permit, sink))
            .map_err(|e| disk_refusal(spool, &id, size, &e)),
        Err(refusal) => Err(refusal),
    };
    let (permit, sink) = match opened {
        Ok(opened) => opened,
        Err(refusal) => return message::write(channel, &SubmitReply::Refused(refusal)).await,
    };
    let from = sink.committing.size();
    message::write(channel, &SubmitReply::From(from)).await?;
    let sink = match copy(channel, &permit, sink, size).await? {
        Ok(sink) => sink,
        Err((e, left)) => {
            message::write(channel, &SubmitReply::Refused(disk_refusal(spool, &id, size, &e)))
                .await?;
            return drain(channel, left).await;
        }
    };
    let answer = match sink.committing.finish() == said.commitment {
        true => finish(spool, id, &push).await,
        false => {
            discard(spool, &id);
            Err(if from > 0 { Refusal::Again } else { Refusal::Mismatch })
        }
    };
    message::write(channel, &answer.map_or_else(SubmitReply::Refused, SubmitReply::Receipt)).await
}

/// Reads the client's remaining data for a limited time, so that the client reads the answer.
async fn drain(channel: &mut (impl AsyncRead + Unpin), left: u64) -> io::Result<()> {
    let mut rest = channel.take(left);
    let mut bin = tokio::io::sink();
    let read = tokio::io::copy(&mut rest, &mut bin);
    match within(DISCARD_TIMEOUT, "end of the data", read).await? == left {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Opens the file with the incomplete data of earlier pushes, and hashes it.
async fn open(spool: &Spool, id: StampId, push: &Push) -> io::Result<Sink> {
    let (part, whole) = (spool.files.part_path(&id), spool.files.data_path(&id));
    let commitment = push.stamp.value().commitment;
    let mut committing = CommitmentHasher::new(&push.nonce, &push.stamp.value().client);
    let work = move || {
        // The data is complete if the node ended before it could give the receipt.
        match std::fs::rename(&whole, &part) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&part)?;
        if file.metadata()?.len() > commitment.size {
            file.set_len(0)?;
        }
        let mut buffer = vec![0; CHUNK];
        loop {
            let n = file.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            committing.update(&buffer[..n]);
        }
        file.seek(SeekFrom::Start(committing.size()))?;
        Ok(Sink { file, committing })
    };
    spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Reads the remaining data from the channel. The inner error is that of the disk, with the number of bytes not read
/// yet.
async fn copy(
    channel: &mut (impl AsyncRead + Unpin),
    permit: &PushPermit<'_>,
    mut sink: Sink,
    size: u64,
) -> io::Result<Result<Sink, (io::Error, u64)>> {
    let (mut buffer, mut reader) = (Vec::new(), ClientReader::default());
    while sink.committing.size() < size {
        let left = size - sink.committing.size();
        buffer.resize(left.min(CHUNK as u64) as usize, 0);
        let (came, ended) = reader.fill(channel, &mut buffer).await;
        buffer.truncate(came);
        // Received data is kept whatever ended the connection.
        let bytes = std::mem::take(&mut buffer);
        let written = spawn_blocking(move || {
            sink.file.write_all(&bytes).map(|()| {
                sink.committing.update(&bytes);
                (sink, bytes)
            })
        });
        match written.await.map_err(io::Error::other)? {
            Ok(done) => (sink, buffer) = done,
            Err(e) => return Ok(Err((e, left - came as u64))),
        }
        permit.record_written(came as u64);
        if sink.committing.size() < size {
            ended?;
        }
    }
    Ok(Ok(sink))
}

async fn finish(spool: &Spool, id: StampId, push: &Push) -> Result<Vec<u8>, Refusal> {
    let path = spool.files.data_path(&id);
    let size = push.stamp.value().commitment.size;
    spool.files.complete(&id).map_err(|e| disk_refusal(spool, &id, size, &e))?;
    let delivery = ReceiptDelivery {
        stamp: push.stamp.encode(),
        receipt: Vec::new(),
        nonce: push.nonce,
        path: path.into_os_string().into_encoded_bytes(),
    };
    spool.sign_receipt(delivery, size).await
}

/// The refusal for a disk error. If the disk is full, deletes the incomplete data.
fn disk_refusal(spool: &Spool, id: &StampId, size: u64, error: &io::Error) -> Refusal {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => {
            discard(spool, id);
            Refusal::NoRoom(size)
        }
        _ => Refusal::Unable(format!("keep the data: {error}")),
    }
}

fn discard(spool: &Spool, id: &StampId) {
    // A part that cannot be removed is later found to be damaged, or removed when it expires.
    _ = std::fs::remove_file(spool.files.part_path(id));
}
