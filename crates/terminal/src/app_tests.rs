//! What comes from the terminal and the server, and when it is drawn.

use crossterm::event::{KeyCode, KeyEvent};
use futures_util::stream;

use super::*;

async fn app(server: &str) -> (App, mpsc::Receiver<Answer>) {
    let options = Options {
        server: server.to_owned(),
        key: None,
        workspace: None,
        open: Open::New,
        mode: None,
        model: None,
        agent: None,
        attach: Vec::new(),
        json: false,
        dumb: false,
    };
    let session = Session::open(&options).await.unwrap();
    let (answers, answered) = mpsc::channel(16);
    let (screen, tasks) = (Screen::new(Vec::new()), TaskTracker::new());
    (
        App { session, screen, tasks, items: None, joined: false, answers, watching: false, quit: false },
        answered,
    )
}

fn keys(text: &str) -> impl Stream<Item = std::io::Result<Event>> + Unpin {
    let code = |c| if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
    let keys: Vec<_> = text.chars().map(|c| Ok(Event::Key(KeyEvent::from(code(c))))).collect();
    stream::iter(keys)
}

#[tokio::test]
async fn keys_that_wait_are_all_taken_before_the_next_frame() {
    let (mut app, mut answered) = app("http://127.0.0.1:9").await;
    let text = "key ".repeat(75);
    // The stream's end would end the chat: the first frame with everything on it does.
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (mut stop, mut frames) = (Some(stop), 0);
    let show = |screen: &mut Screen, _: &str| {
        frames += 1;
        if screen.editor.text() == text {
            stop.take();
        }
        Ok(())
    };
    let told = async { drop(stopped.await) };
    gather(&mut app, keys(&text).chain(stream::pending()), &mut answered, told, show).await.unwrap();
    assert_eq!((app.screen.editor.text(), frames), (text.as_str(), 1));
}

#[tokio::test]
async fn that_no_server_answers_is_said_until_one_does() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let (mut app, mut answered) = app(&format!("http://{address}")).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (mut stop, mut told) = (Some(stop), false);
    let show = |screen: &mut Screen, _: &str| {
        match &screen.status {
            Some(notice) if !told && notice.text.contains("no server answers") => {
                told = true;
                std::thread::spawn(move || answer_once(address));
            }
            None if told => drop(stop.take()),
            _ => {}
        }
        Ok(())
    };
    let end = async { drop(tokio::time::timeout(Duration::from_secs(20), stopped).await) };
    gather(&mut app, keys("Hi\n").chain(stream::pending()), &mut answered, end, show).await.unwrap();
    assert!(told);
    assert_eq!((app.screen.status, app.screen.editor.text()), (None, "Hi"));
}

fn answer_once(address: std::net::SocketAddr) {
    use std::io::{Read as _, Write as _};
    let (mut socket, _) = std::net::TcpListener::bind(address).unwrap().accept().unwrap();
    assert!(socket.read(&mut [0; 4096]).unwrap() > 0);
    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
}

#[tokio::test]
async fn a_message_is_queued_once_its_conversation_is_known() {
    let (mut app, _answered) = app("http://127.0.0.1:9").await;
    app.screen.turn = Turn::Running(Uuid::nil());
    app.screen.thread.queue.push("Two".to_owned(), Vec::new());
    app.forward();
    assert!(!app.screen.thread.queue.sending(), "it would begin a conversation of its own");
    app.session.conversation = Some(Uuid::nil());
    app.forward();
    assert!(app.screen.thread.queue.sending());
}

#[tokio::test]
async fn after_a_run_that_was_joined_comes_the_one_that_waits_for_it() {
    let (mut app, mut answered) = app("http://127.0.0.1:9").await;
    let (id, run) =
        (Uuid::from_u128(1), |n| RunState { id: Uuid::from_u128(n), status: "queued".to_owned() });
    let read = || Read { title: "Two runs".to_owned(), messages: Vec::new() };
    app.answer(Answer::Opened(id, Ok((read(), Some(run(2))))));
    app.item(None);
    let asked = tokio::time::timeout(Duration::from_secs(20), answered.recv()).await;
    assert!(matches!(asked, Ok(Some(Answer::Joined(..)))), "what comes next is asked for");
    app.answer(Answer::Joined(id, Ok((read(), Some(run(3))))));
    assert_eq!(app.screen.turn, Turn::Running(Uuid::from_u128(3)));
    // What is typed in the meantime is not thrown away for it.
    app.item(None);
    app.screen.turn = Turn::Sent;
    app.answer(Answer::Joined(id, Ok((read(), Some(run(4))))));
    assert_eq!(app.screen.turn, Turn::Sent);
}
