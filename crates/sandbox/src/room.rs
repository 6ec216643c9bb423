//! A room from the outside: started, asked, ended. Whatever happens to the service or to the run, the room's
//! processes, its mounts and its files go with this handle.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::Layer;
use crate::frame::{self, Answer, Ask, Kind, RoomLimits, Setup, Step};
use crate::inside::{NOBODY, SUBCOMMAND, is_root_beside_nobody};

/// A room that is not ready by then never will be.
const OPENING: Duration = Duration::from_secs(10);
/// A room ends in a fraction of this.
const CLOSING: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct RoomSettings {
    /// Started again for the room's own processes.
    pub program: PathBuf,
    pub limits: RoomLimits,
    pub hide: Vec<String>,
    /// Layers to leave out.
    pub without: Vec<Layer>,
    /// Where rooms without namespaces have their folders.
    pub folder: Arc<PathBuf>,
    /// Rooms that are dropped are ended here.
    pub tasks: TaskTracker,
}

#[derive(Debug, thiserror::Error)]
pub enum RoomError {
    #[error("the room could not be made: {0}")]
    Setup(String),
    #[error("the room has ended: {0}")]
    Gone(#[from] io::Error),
}

pub struct Room {
    /// `None` when it was closed.
    open: Option<Open>,
    pub layers: Vec<Layer>,
    tasks: TaskTracker,
}

struct Open {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// The folder of a room that has no root of its own.
    _folder: Option<TempDir>,
}

impl Room {
    pub async fn open(settings: &RoomSettings, kind: &Kind) -> Result<Self, RoomError> {
        let setup_error = |error: io::Error| RoomError::Setup(error.to_string());
        let (kind, folder) = match kind {
            Kind::Bare(_) => {
                let folder = bare_folder(settings).map_err(setup_error)?;
                (Kind::Bare(folder.path().to_string_lossy().into_owned()), Some(folder))
            }
            kind => (kind.clone(), None),
        };
        let setup = Setup {
            step: Step::Enter,
            kind,
            limits: settings.limits,
            hide: settings.hide.clone(),
            without: settings.without.clone(),
        };
        let setup = serde_json::to_string(&setup).map_err(|error| RoomError::Setup(error.to_string()))?;
        let mut child = Command::new(&settings.program)
            .args([SUBCOMMAND, &setup])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(setup_error)?;
        let missing = || RoomError::Setup("it has no pipes".into());
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let open = Some(Open { child, stdin, stdout, _folder: folder });
        let mut room = Self { open, layers: Vec::new(), tasks: settings.tasks.clone() };
        match timeout(OPENING, room.hear()).await {
            Ok(Ok((Answer::Ready { layers }, _))) => room.layers = layers,
            Ok(Ok((Answer::Failed { message }, _))) => return Err(RoomError::Setup(message)),
            Ok(Ok(_)) => return Err(RoomError::Setup("it answers what was not asked".into())),
            Ok(Err(error)) => return Err(RoomError::Setup(room.last_words(&error).await)),
            Err(_) => {
                return Err(RoomError::Setup(format!("it was not ready within {} s", OPENING.as_secs())));
            }
        }
        Ok(room)
    }

    fn opened(&mut self) -> io::Result<&mut Open> {
        self.open.as_mut().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// What the ended process wrote to its standard error.
    async fn last_words(&mut self, error: &io::Error) -> String {
        let mut words = String::new();
        if let Some(stderr) = self.opened().ok().and_then(|open| open.child.stderr.take()) {
            let _ = timeout(CLOSING, stderr.take(2000).read_to_string(&mut words)).await;
        }
        if words.trim().is_empty() { error.to_string() } else { words.trim().to_owned() }
    }

    pub async fn ask(&mut self, ask: &Ask, payload: &[u8]) -> Result<(Answer, Vec<u8>), RoomError> {
        self.say(ask, payload).await?;
        self.hear().await.map_err(RoomError::Gone)
    }

    pub async fn say(&mut self, ask: &Ask, payload: &[u8]) -> Result<(), RoomError> {
        let stdin = &mut self.opened()?.stdin;
        stdin.write_all(&frame::head(ask, payload.len())?).await?;
        stdin.write_all(payload).await?;
        Ok(stdin.flush().await?)
    }

    pub async fn hear(&mut self) -> io::Result<(Answer, Vec<u8>)> {
        let stdout = &mut self.opened()?.stdout;
        let mut line = Vec::new();
        if (&mut *stdout).take(1024 * 1024).read_until(b'\n', &mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (answer, len) = frame::parse_head(&line)?;
        let mut payload = vec![0; len];
        stdout.read_exact(&mut payload).await?;
        Ok((answer, payload))
    }

    /// Ends the room and waits until it is gone. Who gives up waiting does not keep it from going.
    pub async fn close(mut self) {
        if let Some(open) = self.open.take() {
            let _ = self.tasks.spawn(open.end()).await;
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // Outside the runtime nobody is left to wait; the room ends by itself when its input does.
        if let (Some(open), Ok(runtime)) = (self.open.take(), Handle::try_current()) {
            self.tasks.spawn_on(open.end(), &runtime);
        }
    }
}

impl Open {
    /// When its input is over the room's first process goes, and with it, by the kernel or by its own hand, all others;
    /// then its parent, which is our child. So each is waited for by its own parent. What does not go is ended.
    async fn end(mut self) {
        drop(self.stdin);
        let gone = async {
            let _ = tokio::io::copy(&mut self.stdout, &mut tokio::io::sink()).await;
            self.child.wait().await
        };
        if timeout(CLOSING, gone).await.is_err() {
            tracing::warn!("a sandbox room did not end by itself");
            let _ = self.child.start_kill();
            let _ = self.child.wait().await;
        }
    }
}

/// Where rooms without namespaces are, for this user.
pub fn bare_base() -> PathBuf {
    std::env::temp_dir().join(format!("threadkeep-sandbox-{}", nix::unistd::geteuid()))
}

/// A folder that the room's user may use.
fn bare_folder(settings: &RoomSettings) -> io::Result<TempDir> {
    let (base, user) = (&*settings.folder, nix::unistd::geteuid());
    std::fs::DirBuilder::new().recursive(true).mode(0o711).create(base)?;
    let about = std::fs::symlink_metadata(base)?;
    if !about.is_dir() || about.uid() != user.as_raw() {
        return Err(io::Error::other(format!("{} is somebody else's; remove it", base.display())));
    }
    let folder = tempfile::Builder::new().prefix(&format!("{}-", std::process::id())).tempdir_in(base)?;
    if is_root_beside_nobody() {
        std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY))?;
    }
    Ok(folder)
}

/// Removes the folders of services that were killed.
pub fn sweep(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split_once('-')).map(|(pid, _)| pid.to_owned());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
