use std::{collections::BTreeSet, time::Duration};

use coswitch_policies::{JobId, NodeId};

use super::*;
use crate::{
    coscheduling::tests::with_counts, fold::tests::two_jobs_in_turn, gain::tests::slower, journal::Event,
    snapshots::tests::with_snapshots,
};

fn renamed(name: &str) -> Vec<RunEvent> {
    let mut events = two_jobs_in_turn();
    for event in &mut events {
        if let Event::JobSubmitted { name: of, job, .. } = &mut event.kind
            && job.0 == 0
        {
            *of = name.into();
        }
    }
    events
}

#[test]
fn a_name_cannot_break_out_of_the_page() {
    let page = page(&[renamed("</script><script>alert(1)</script>")]);
    assert!(!page.contains("<script>alert"), "it is escaped in tables and in the data");
    assert_eq!(page.matches("<script").count(), 4);
}

#[test]
fn a_page_loads_nothing_and_stays_small() {
    let page = page(&[two_jobs_in_turn()]);
    assert!(page.contains("default-src 'none'"));
    for loads in ["src=\"", "@import", "url(http", "<link"] {
        assert!(!page.contains(loads), "{loads}");
    }
    assert!(page.len() < 600 << 10, "{} bytes", page.len());
}

#[test]
fn what_node_schedulers_counted_and_decided_has_a_section_where_there_were_some() {
    let nodes = vec![crate::decisions::tests::node(0, 0, 100)];
    let decisions = Decisions { job: JobId(1), nodes };
    let with = page_with(&[with_counts()], vec![Some(decisions)]);
    for part in ["Node schedulers", "before the end of job-1", "fill:var(--j0)", "local tasks", "0.50"] {
        assert!(with.contains(part), "{part}");
    }
    assert!(!page(&[two_jobs_in_turn()]).contains("Node schedulers"));
}

#[test]
fn runs_with_local_tasks_are_compared_by_what_jobs_gain_and_local_tasks_lose() {
    let with = page(&[with_counts(), slower()]);
    for part in ["first run ÷ in this one", "local tasks ÷ alone", ">0.50 ×<", ">200.0 %<", ">500.0 %<"] {
        assert!(with.contains(part), "{part}");
    }
    assert!(!page(&[two_jobs_in_turn(), two_jobs_in_turn()]).contains("local tasks ÷ alone"));
}

#[test]
fn slices_checkpoints_and_copies_have_tiles_where_there_were_some() {
    let mut events = with_snapshots();
    let seconds = Duration::from_secs;
    let at = seconds(5).into();
    let rows = [0, 1].map(|job| BTreeSet::from([JobId(job)])).to_vec();
    let begun = Event::SlicesBegun { slice: seconds(1) / 50, rows };
    let (node, took, overlap) = (NodeId(0), seconds(1) / 5, seconds(1) / 2);
    let used = Event::SlicesUsed { node, switches: 50, took, overlap };
    events.splice(7..7, [begun, used].map(|kind| RunEvent { at, kind }));
    let with = page(&[events]);
    for part in ["20 ms for 2 rows of jobs", "50 of 4 ms each", ">0.5 s<", "2 of 200 MiB", "1 of 50 MiB"] {
        assert!(with.contains(part), "{part}");
    }
    let without = page(&[two_jobs_in_turn()]);
    for part in ["Warm switches", "Overlap of slices", ">Checkpoints<", ">Copies<"] {
        assert!(with.contains(part) && !without.contains(part), "{part}");
    }
}

#[test]
fn the_page_of_an_empty_journal_says_that_the_run_did_not_end() {
    assert!(page(&[vec![]]).contains("It did not come to its end"));
}

#[test]
fn runs_of_one_name_get_different_labels() {
    let page = page(&[two_jobs_in_turn(), two_jobs_in_turn()]);
    assert!(
        page.contains("two (gang) #1")
            && page.contains("two (gang) #2")
            && page.contains("Comparison of 2 runs")
    );
}

#[test]
fn the_story_names_the_job_that_waited_most_and_the_cause() {
    let history = History::of(&two_jobs_in_turn());
    let story = story::story(&history, &fold(&two_jobs_in_turn()));
    let about = |about: &str| story.points.iter().find(|point| point.about == about).unwrap().text.as_str();
    assert_eq!(
        about("Who waited most"),
        "job-1 stood still for 19.0 s of the 30.0 s from its submission to its end: 12.0 s before its first \
         turn and 7.0 s between its turns. It ran for 11.0 s."
    );
    assert_eq!(
        about("Why"),
        "For 15.0 s others had its nodes, and gang gives a node to 1 job at a time; job-0 had them longest \
         (15.0 s). For 4.0 s no job ran, because jobs were being started or switched."
    );
}
