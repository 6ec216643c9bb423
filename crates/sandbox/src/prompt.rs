//! What the model is told before the conversation: where it is, what it can do, and the skills.

use crate::envelope::{Skill, TASK_FLOW};
use crate::room::Room;
use crate::run::Failure;
use crate::tools::found;

const SETTING: &str = "You are an agent in a sandbox: a Linux machine of your own for this one task, without network. \
You work in the folder $WORKSPACE (/root/workspace), where the user's files are. Use the tools to look, to run commands \
and to write files. Whatever is in assets/ when you are done is given to the user; everything else is gone. Do what was \
asked, check it, and then answer briefly.";

const SKILL_CHARS: usize = 40_000;

/// The skills that were given, and those that came with the workspace's files.
pub async fn skills(room: &mut Room, mut given: Vec<Skill>) -> Result<Vec<Skill>, Failure> {
    for (path, content) in found(room, "skills", ".md").await? {
        let name = path.trim_start_matches("skills/").trim_end_matches(".md").to_owned();
        // What a file says cannot change how the run goes.
        if name != TASK_FLOW {
            given.push(Skill { name, content });
        }
    }
    Ok(given)
}

pub fn system(skills: &[Skill]) -> String {
    let mut text = SETTING.to_owned();
    for skill in skills.iter().filter(|skill| skill.name != TASK_FLOW) {
        let content: String = skill.content.chars().take(SKILL_CHARS).collect();
        text.push_str(&format!("\n\n# Skill: {}\n\n{content}", skill.name));
    }
    text
}
