//! In a real terminal: what a person sees and what the keys do.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use testkit::sandbox::{Action, Release};

use crate::tmux::Tmux;
use crate::world::{Wire, World, delta, gated, lines, result, step};

#[tokio::test]
async fn an_answer_streams_steps_update_in_place_and_a_resize_is_followed() {
    let (world, gate) = (World::new().await, Release::default());
    let long = "word ".repeat(30);
    let first =
        vec![step("s", "count words", "running"), delta("# Title\n\nSome **bold** \u{1b}[31mred &#27;[2J ")];
    let then = vec![step("s", "count words", "succeeded"), delta(&long), result("")];
    world.sandbox.play(gated(first, &gate, then));
    let Some(tmux) = Tmux::chat(&world, world.server.url(), &[]) else { return };
    tmux.until_shows("New conversation").await;
    tmux.enter("Good morning");
    let shown = tmux.until_shows("Some bold").await;
    assert!(shown.contains("› Good morning") && shown.contains("… count words"), "{shown}");
    assert!(shown.contains("␛[31mred ␛[2J"), "others' escape sequences are shown, not obeyed: {shown}");
    assert!(shown.contains("Working…"), "{shown}");
    gate.open();
    let shown = tmux.until_shows("✓ count words").await;
    assert_eq!(shown.matches("count words").count(), 1, "in place: {shown}");
    tmux.until_shows("/help").await;
    for (width, height) in [(40, 24), (100, 30), (30, 12), (80, 24)] {
        tmux.resize(width, height);
        let whole = |shown: &str| {
            shown.matches("word ").count() + shown.matches("word\n").count() >= 30
                && shown.lines().all(|line| line.chars().count() <= usize::from(width))
        };
        // Of the smallest only the end fits.
        if height < 20 {
            tmux.until(|shown| shown.contains("word word")).await
        } else {
            tmux.until(whole).await
        };
    }
    // The title of the conversation is known by now.
    tmux.until(|shown| shown.lines().next().is_some_and(|line| line.contains("Good morning"))).await;
    tmux.enter("/quit");
    let shown = tmux.until_shows("ended with 0").await;
    assert!(shown.contains("before the chat") && shown.contains("Come back with"), "{shown}");
}

#[tokio::test]
async fn an_interrupt_stops_the_turn_and_the_next_one_leaves_with_the_terminal_as_it_was() {
    let world = World::new().await;
    let mut script = lines(vec![delta("So far")]);
    script.push(Action::Hang);
    world.sandbox.play(script);
    let Some(tmux) = Tmux::chat(&world, world.server.url(), &[]) else { return };
    tmux.until_shows("New conversation").await;
    tmux.enter("Go on forever");
    tmux.until_shows("So far").await;
    tmux.key("C-c");
    let shown = tmux.until_shows("Stopped").await;
    assert!(shown.contains("So far"), "{shown}");
    world.sandbox.disconnected(0).await.expect("the sandbox hears of it");
    tmux.until_shows("Ctrl-C leaves").await;
    tmux.key("C-c");
    let shown = tmux.until_shows("ended with 0").await;
    assert!(shown.contains("before the chat"), "{shown}");
    // The terminal echoes and breaks lines again: `cat` repeats what is typed.
    tmux.enter("typed");
    tmux.until(|shown| shown.matches("typed").count() == 2).await;
}

#[tokio::test]
async fn an_interrupt_stops_a_turn_that_the_server_has_not_answered_yet() {
    let world = World::new().await;
    let wire = Wire::to(world.server.url()).await;
    let mut script = lines(vec![delta("So far")]);
    script.push(Action::Hang);
    world.sandbox.play(script);
    let Some(tmux) = Tmux::chat(&world, wire.url(), &[]) else { return };
    tmux.until_shows("New conversation").await;
    wire.cut();
    tmux.enter("Go on forever");
    tmux.until_shows("The server is away").await;
    tmux.key("C-c");
    wire.mend();
    let shown = tmux.until_shows("Stopped").await;
    assert!(shown.contains("› Go on forever"), "{shown}");
    tmux.until_shows("Ctrl-C leaves").await;
}

#[tokio::test]
async fn a_terminal_that_cannot_be_drawn_on_is_written_to_line_by_line() {
    let world = World::new().await;
    let Some(tmux) = Tmux::chat_with(&world, world.server.url(), "TERM=dumb", &[]) else { return };
    tmux.until_shows("\n>\n").await;
    tmux.enter("Good morning");
    let shown = tmux.until_shows("Hello.\n>\n").await;
    assert!(shown.contains("before the chat") && shown.contains("> Good morning"), "{shown}");
    tmux.key("C-d");
    tmux.until_shows("ended with 0").await;
}

#[tokio::test]
async fn a_terminal_is_given_back_when_the_chat_is_told_to_end() {
    let world = World::new().await;
    let Some(tmux) = Tmux::chat(&world, world.server.url(), &[]) else { return };
    tmux.until_shows("New conversation").await;
    kill(Pid::from_raw(tmux.chat_pid()), Signal::SIGTERM).expect("a signal");
    let shown = tmux.until_shows("ended with 0").await;
    assert!(shown.contains("before the chat") && !shown.contains("New conversation"), "{shown}");
}

#[tokio::test]
async fn files_go_in_by_path_and_come_out_by_name() {
    let world = World::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (path, to) = (folder.path().join("my notes.txt"), folder.path().join("copy.txt"));
    std::fs::write(&path, "alpha\nbeta\n").expect("written");
    let Some(tmux) = Tmux::chat(&world, world.server.url(), &[]) else { return };
    tmux.until_shows("New conversation").await;
    tmux.enter("/attach /not/there");
    tmux.until_shows("/not/there: No such file").await;
    tmux.enter(&format!("/attach '{}'", path.display()));
    tmux.until_shows("Attached: my notes.txt (11 B)").await;
    tmux.enter("Read this");
    tmux.until_shows("Hello.").await;
    let attached = &world.newest().await["attributes"]["messages"][0]["fileAttachments"];
    assert_eq!(attached[0]["name"], "my notes.txt", "{attached}");
    tmux.enter(&format!("/save 'my notes.txt' {}", to.display()));
    tmux.until_shows("Saved as").await;
    assert_eq!(std::fs::read(&to).expect("the copy"), b"alpha\nbeta\n");
    tmux.enter(&format!("/save 'my notes.txt' {}", to.display()));
    tmux.until_shows("is there already").await;
}

#[tokio::test]
async fn a_turn_under_way_is_joined_by_whoever_opens_its_conversation() {
    let (world, gate) = (World::new().await, Release::default());
    world.sandbox.play(gated(vec![delta("First half, ")], &gate, vec![delta("second half."), result("")]));
    let Some(tmux) = Tmux::chat(&world, world.server.url(), &[]) else { return };
    tmux.until_shows("New conversation").await;
    tmux.enter("Tell me");
    tmux.until_shows("First half,").await;
    // Leaving does not end it.
    tmux.enter("/quit");
    tmux.until_shows("The turn goes on.").await;
    let again = Tmux::chat(&world, world.server.url(), &["--continue"]).expect("tmux is here");
    let shown = again.until_shows("First half,").await;
    assert!(shown.contains("› Tell me") && shown.contains("Working…"), "{shown}");
    gate.open();
    again.until_shows("First half, second half.").await;
    again.until_shows("/help").await;
}

#[tokio::test]
async fn a_broken_connection_is_told_and_made_again() {
    let (world, gate) = (World::new().await, Release::default());
    let wire = Wire::to(world.server.url()).await;
    world.sandbox.play(gated(vec![delta("First half, ")], &gate, vec![delta("second half."), result("")]));
    let Some(tmux) = Tmux::chat(&world, wire.url(), &[]) else { return };
    tmux.until_shows("New conversation").await;
    tmux.enter("Tell me");
    tmux.until_shows("First half,").await;
    wire.cut();
    tmux.until_shows("The server is away").await;
    gate.open();
    wire.mend();
    let shown = tmux.until_shows("First half, second half.").await;
    assert_eq!(shown.matches("First half").count(), 1, "{shown}");
    tmux.until(|shown| !shown.contains("away")).await;
}

#[tokio::test]
async fn the_history_is_searched_and_messages_are_edited_and_answered_again() {
    let world = World::new().await;
    for message in ["Invoices of May", "Holidays in June"] {
        world.say(message, &[]).await;
    }
    let Some(tmux) = Tmux::chat(&world, world.server.url(), &["--pick"]) else { return };
    let shown = tmux.until_shows("Invoices of May").await;
    assert!(shown.contains("Holidays in June") && shown.contains("today"), "{shown}");
    tmux.type_text("invo");
    tmux.until(|shown| shown.contains("Invoices of May") && !shown.contains("Holidays")).await;
    tmux.key("Enter");
    tmux.until_shows("› Invoices of May").await;
    world.sandbox.play(lines(vec![result("Another answer.")]));
    tmux.enter("/regenerate");
    let shown = tmux.until_shows("Another answer.").await;
    assert!(!shown.contains("Hello."), "{shown}");
    world.sandbox.play(lines(vec![json!({ "type": "result", "message": "It is June." })]));
    tmux.enter("/edit");
    tmux.until_shows("Editing your last message").await;
    tmux.key("C-u");
    tmux.enter("Invoices of June");
    let shown = tmux.until_shows("It is June.").await;
    assert!(shown.contains("› Invoices of June") && !shown.contains("› Invoices of May"), "{shown}");
    let thread = world.newest().await;
    let texts: Vec<&str> = thread["attributes"]["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|message| message["content"].as_str().expect("text"))
        .collect();
    assert_eq!(texts, ["Invoices of June", "It is June."]);
    tmux.enter("/history holi");
    tmux.until_shows("› Holidays in June").await;
    tmux.key("Escape");
    tmux.until_shows("It is June.").await;
    tmux.enter("/new");
    tmux.until_shows("New conversation").await;
}
