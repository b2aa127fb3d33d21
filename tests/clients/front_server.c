/*
 * The front over the tests' fake service, as a program, for clients in
 * other languages: every call is answered with the letters of the alphabet.
 * Prints its port, and ends when its standard input does.
 */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "conductor/front/front.h"
#include "tests/unit/fake_service.h"

struct program {
    struct event_base *base;
    struct service service;
};

/* Answer what came in since the last tick. */
static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct program *program = arg;
    struct service *service = &program->service;

    (void)fd;
    (void)what;
    for (size_t i = 0; i < service->n_requests; i++)
        fake_run(service->requests[i]);
    fake_service_reset(service);
}

static void on_input(evutil_socket_t fd, short what, void *arg)
{
    struct program *program = arg;
    char bytes[64];

    (void)what;
    if (read(fd, bytes, sizeof(bytes)) <= 0)
        event_base_loopbreak(program->base);
}

int main(void)
{
    struct program program = {.service = {.model = {.name = "tiny",
                                                    .vocab = 512,
                                                    .window_tokens = 32768,
                                                    .block_tokens = 256,
                                                    .policy = "plan",
                                                    .created_s = 1750000000},
                                          .ready = true}};
    struct models models = {.service = &program.service};
    const struct timeval tick_every = {0, 2000};
    struct front_options options;
    struct event *tick, *input;
    struct front *front;

    program.base = event_base_new();
    front_options_default(&options);
    options.http.port = 0;
    if (front_new(program.base, &models, &options, &front))
        return 1;
    tick = event_new(program.base, -1, EV_PERSIST, on_tick, &program);
    input = event_new(program.base, STDIN_FILENO, EV_READ | EV_PERSIST,
                      on_input, &program);
    event_add(tick, &tick_every);
    event_add(input, NULL);
    printf("%u\n", front_port(front));
    fflush(stdout);
    event_base_dispatch(program.base);
    event_free(tick);
    event_free(input);
    front_free(front);
    fake_service_reset(&program.service);
    event_base_free(program.base);
    return 0;
}
