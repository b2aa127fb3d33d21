/*
 * Any stream from a server, cut where its first byte says: the record ends in
 * a final state, and events do not depend on the cut.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/live/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct replay_record answer(const char *text, size_t bytes, size_t cut,
                                   int status)
{
    struct replay_record record = {.first_token_us = -1, .input_tokens = 5};
    struct replay_answer answer;

    replay_answer_init(&answer, &record);
    replay_answer_feed(&answer, status, text, cut, 1000);
    replay_answer_feed(&answer, status, text + cut, bytes - cut, 1000);
    replay_answer_finish(&answer, status, NULL, 2000);
    return record;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    int status = data[0] % 4 == 0 ? 500 : 200;
    size_t cut = (size_t)data[1] % (bytes - 1);
    const char *text = (const char *)data + 2;
    struct replay_record whole = answer(text, bytes - 2, 0, status);
    struct replay_record parts =
        answer(text, bytes - 2, cut < bytes - 2 ? cut : 0, status);
    if (whole.outcome == REPLAY_PENDING || whole.outcome != parts.outcome ||
        whole.generated_tokens != parts.generated_tokens ||
        strcmp(whole.reason, parts.reason) != 0 ||
        whole.reused_tokens > whole.prompt_tokens)
        abort();
    return 0;
}
