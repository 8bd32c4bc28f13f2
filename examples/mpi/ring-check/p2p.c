/* Point-to-point rounds: windows of non-blocking messages, any-source reception in four ways, bursts of small
 * messages at a busy receiver, shifts round the ring, a token passed by synchronous sends.
 *
 * No round ends with a barrier: a fast rank may be rounds ahead, which exact tags and channel order allow.
 * Only any-source reception would take messages of a later round, so it has a communicator of its own and a
 * barrier before it. */
#include "ring.h"

struct outbox {
    int count;
    MPI_Request requests[PLAN_MAX];
    char *buffers[PLAN_MAX];
};

static void post_sends(struct run *run, const struct plan *plan, MPI_Comm comm, struct outbox *outbox) {
    outbox->count = 0;
    for (int i = 0; i < plan->count; i++) {
        const struct planned *planned = &plan->messages[i];
        if (planned->source != run->rank) continue;
        char *buffer = outbox->buffers[outbox->count] = allocate(planned->bytes);
        fill_message(run, buffer, planned);
        MPI_Request *request = &outbox->requests[outbox->count++];
        if (planned->synchronous)
            MPI_Issend(buffer, (int)planned->bytes, MPI_BYTE, planned->target, planned->tag, comm, request);
        else MPI_Isend(buffer, (int)planned->bytes, MPI_BYTE, planned->target, planned->tag, comm, request);
    }
}

static void finish_sends(struct outbox *outbox) {
    MPI_Waitall(outbox->count, outbox->requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < outbox->count; i++) free(outbox->buffers[i]);
}

/* Shuffled indexes of the messages to this rank. Every rank draws the same number of random numbers. */
static int shuffled_arrivals(const struct run *run, struct draws *draws, const struct plan *plan,
                             int *order) {
    int all[PLAN_MAX], count = 0;
    for (int i = 0; i < plan->count; i++) {
        int at = (int)draw_below(draws, i + 1);
        all[i] = all[at];
        all[at] = i;
    }
    for (int i = 0; i < plan->count; i++)
        if (plan->messages[all[i]].target == run->rank) order[count++] = all[i];
    return count;
}

/* Receives posted in random order under unique tags, before or after the sends, completed one by one or
 * together. */
void window_round(struct run *run, struct draws *draws) {
    static struct plan plan;
    static struct outbox outbox;
    static MPI_Request requests[PLAN_MAX];
    static char *buffers[PLAN_MAX];
    int order[PLAN_MAX];
    plan_messages(run, draws, &plan, 32, 2 * (size_t)run->max_bytes, 1);
    int count = shuffled_arrivals(run, draws, &plan, order), late = (int)draw_below(draws, 2),
        one_by_one = (int)draw_below(draws, 2);
    if (late) {
        post_sends(run, &plan, MPI_COMM_WORLD, &outbox);
        pause_computing(run, draws);
    }
    for (int i = 0; i < count; i++) {
        const struct planned *planned = &plan.messages[order[i]];
        buffers[i] = allocate(planned->bytes);
        MPI_Irecv(buffers[i], (int)planned->bytes, MPI_BYTE, planned->source, planned->tag, MPI_COMM_WORLD,
                  &requests[i]);
    }
    if (!late) post_sends(run, &plan, MPI_COMM_WORLD, &outbox);
    static MPI_Status statuses[PLAN_MAX];
    if (!one_by_one) MPI_Waitall(count, requests, statuses);
    for (int i = 0; i < count; i++) {
        int which = i;
        MPI_Status status;
        if (one_by_one) MPI_Waitany(count, requests, &which, &status);
        else status = statuses[i];
        check_message(run, buffers[which], &plan.messages[order[which]], &status);
        free(buffers[which]);
    }
    run->tally.messages += count;
    finish_sends(&outbox);
}

/* Receives the next message from any source, in one of four ways. Returns a buffer to free. */
static char *receive_any(struct run *run, int way, MPI_Status *status) {
    int bytes, found = 0;
    char *buffer;
    MPI_Message message;
    if (way == 0) {
        buffer = allocate(run->max_bytes);
        MPI_Recv(buffer, (int)run->max_bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, run->any_source, status);
        return buffer;
    }
    if (way == 1) MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, run->any_source, status);
    if (way == 2)
        while (!found) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, run->any_source, &found, status);
    if (way == 3) MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, run->any_source, &message, status);
    MPI_Get_count(status, MPI_BYTE, &bytes);
    buffer = allocate(bytes);
    if (way == 3) MPI_Mrecv(buffer, bytes, MPI_BYTE, &message, status);
    else MPI_Recv(buffer, bytes, MPI_BYTE, status->MPI_SOURCE, status->MPI_TAG, run->any_source, status);
    return buffer;
}

/* The next message of the plan from `source` to this rank, at or after position `from`; plan->count if there
 * is none. */
static int next_from(const struct run *run, const struct plan *plan, int source, int from) {
    while (from < plan->count &&
           (plan->messages[from].source != source || plan->messages[from].target != run->rank))
        from++;
    return from;
}

/* In MPI messages of one source do not overtake each other if both match, so each source must follow the
 * order of the plan. */
static void receive_in_channel_order(struct run *run, struct draws *draws, const struct plan *plan) {
    int next[RANKS_MAX] = {0};
    for (int i = 0; i < plan->count; i++) {
        int way = (int)draw_below(draws, 4);
        if (plan->messages[i].target != run->rank) continue;
        MPI_Status status;
        char *buffer = receive_any(run, way, &status);
        int source = status.MPI_SOURCE, due = next_from(run, plan, source, next[source]);
        if (due == plan->count) complain(run, "duplicated: a message from %d where none was left", source);
        else check_message(run, buffer, &plan->messages[due], &status);
        next[source] = due + 1;
        run->tally.messages++;
        free(buffer);
    }
}

static void any_order_round(struct run *run, struct draws *draws, int most, size_t most_bytes,
                            int busy_receiver) {
    static struct plan plan;
    static struct outbox outbox;
    plan_messages(run, draws, &plan, most, most_bytes, 0);
    MPI_Barrier(run->any_source); /* all ranks have finished the previous round of this kind */
    post_sends(run, &plan, run->any_source, &outbox);
    if (busy_receiver) pause_computing(run, draws);
    receive_in_channel_order(run, draws, &plan);
    finish_sends(&outbox);
}

void any_source_round(struct run *run, struct draws *draws) {
    any_order_round(run, draws, 32, 2 * (size_t)run->max_bytes, (int)draw_below(draws, 2));
}

/* Sends many small messages to ranks that may be computing, which fills the transport. */
void burst_round(struct run *run, struct draws *draws) {
    any_order_round(run, draws, PLAN_MAX, 256 << 10, 1);
}

/* Every rank sends to the rank `distance` after it and receives from the rank `distance` before it. */
void shift_round(struct run *run, struct draws *draws) {
    int distance = (int)draw_below(draws, run->size), tag = (int)draw_below(draws, 1000);
    size_t bytes = draw_size(draws, run->max_bytes);
    struct planned out = {0}, in = {0};
    for (int source = 0; source < run->size; source++) {
        struct planned planned = {
            .source = source, .target = (source + distance) % run->size, .tag = tag, .bytes = bytes};
        planned.sequence = run->sequence[planned.source][planned.target]++;
        if (planned.source == run->rank) out = planned;
        if (planned.target == run->rank) in = planned;
    }
    char *sent = allocate(bytes), *received = allocate(bytes);
    MPI_Status status;
    fill_message(run, sent, &out);
    MPI_Sendrecv(sent, (int)bytes, MPI_BYTE, out.target, tag, received, (int)bytes, MPI_BYTE, in.source, tag,
                 MPI_COMM_WORLD, &status);
    check_message(run, received, &in, &status);
    run->tally.messages++;
    free(sent);
    free(received);
}

/* One message goes round the whole ring, by blocking synchronous sends; each rank adds its own contents. */
void token_round(struct run *run, struct draws *draws) {
    size_t bytes = draw_size(draws, run->max_bytes);
    int tag = (int)draw_below(draws, 1000);
    char *buffer = allocate(bytes);
    for (int source = 0; source < run->size && run->size > 1; source++) {
        struct planned planned = {
            .source = source, .target = (source + 1) % run->size, .tag = tag, .bytes = bytes};
        planned.sequence = run->sequence[planned.source][planned.target]++;
        if (planned.source == run->rank) {
            fill_message(run, buffer, &planned);
            MPI_Ssend(buffer, (int)bytes, MPI_BYTE, planned.target, tag, MPI_COMM_WORLD);
        } else if (planned.target == run->rank) {
            MPI_Status status;
            MPI_Recv(buffer, (int)bytes, MPI_BYTE, planned.source, tag, MPI_COMM_WORLD, &status);
            check_message(run, buffer, &planned, &status);
            run->tally.messages++;
        }
    }
    free(buffer);
}
