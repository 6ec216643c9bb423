//! What comes from the terminal and the server, and when it is drawn.

use crossterm::event::{KeyCode, KeyEvent};
use futures_util::stream;

use super::*;

async fn app() -> (App, mpsc::Receiver<Answer>) {
    let options = Options {
        server: "http://127.0.0.1:9".to_owned(),
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
    (App { session, screen, tasks, items: None, answers, quit: false }, answered)
}

fn keys(text: &str) -> impl Stream<Item = std::io::Result<Event>> + Unpin {
    let keys: Vec<_> = text.chars().map(|c| Ok(Event::Key(KeyEvent::from(KeyCode::Char(c))))).collect();
    stream::iter(keys)
}

#[tokio::test]
async fn keys_that_wait_are_all_taken_before_the_next_frame() {
    let (mut app, mut answered) = app().await;
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
