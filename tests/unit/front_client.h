/* The front on one loop, on top of a fake service, and its clients: raw
 * sockets that a test moves by hand. One front at a time, `f`. */
#ifndef TESTS_UNIT_FRONT_CLIENT_H
#define TESTS_UNIT_FRONT_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "conductor/front/front.h"
#include "fake_service.h"
#include "tests/unit/suite.h"

struct loop;

#define GIVE_UP_S 10

struct front_fixture {
    struct loop *loop;
    struct service service;
    struct models models;
    struct front *front;
};

extern struct front_fixture f;

/* One client socket and what it has received. */
struct client {
    int fd;
    bool closed;
    size_t n;
    char text[1 << 20];
};

/* The defaults on any free port. */
struct front_options front_usual(void);

/* Makes f with a service that is ready; front_close() frees it. */
void front_open(const struct front_options *options);
void front_close(void);

/* One turn of the loop. */
void front_turn(void);

/* A client that is connected; freed by client_free(). */
struct client *client_new(void);
void client_free(struct client *c);

/* Takes what has come. */
void client_read(struct client *c);

/* Sends while the loop turns. Returns whether all could be sent. */
bool client_send(struct client *c, const char *bytes, size_t n);
void client_puts(struct client *c, const char *text);

/* A POST of JSON; headers with their line ends. */
void client_post(struct client *c, const char *path, const char *headers,
                 const char *body);

/* The whole answer with a Content-Length has come, or the end. */
bool client_whole(const struct client *c);

/* Of the answer: its status, 0 if there is none; its body, which the caller
 * owns, NULL if it is not JSON; a text of that body's error. */
int client_status(const struct client *c);
json_t *client_json(const struct client *c);
const char *error_field(json_t *body, const char *key);

/* Sends a raw request, expects a status and a part of the answer. */
void expect_raw(const char *request, int want, const char *part);

/* A test of a front whose options `change` makes, with one client. */
#define FRONT_TEST_WITH(test, change)                               \
    SUITE_TEST_OF(test, struct client, c, ({                        \
                      struct front_options options = front_usual(); \
                      change;                                       \
                      front_open(&options);                         \
                      client_new();                                 \
                  }),                                               \
                  (client_free(c), front_close()))

/* Likewise with the usual options. */
#define FRONT_TEST(test) FRONT_TEST_WITH(test, (void)0)

/* The client has received `part`. */
#define HAS(c, part) CU_ASSERT_PTR_NOT_NULL(strstr((c)->text, part))

/* A whole answer comes, with this status. */
#define ANSWERED(c, status)                        \
    do {                                           \
        CU_ASSERT(WAIT(c, client_whole(c)));       \
        CU_ASSERT_EQUAL(client_status(c), status); \
    } while (0)

/* A completion is asked for, and the service has then got `count` of them. */
#define POSTED(c, body, count)                                     \
    do {                                                           \
        (c)->n = 0;                                                \
        client_post(c, "/v1/completions", "", body);               \
        CU_ASSERT_FATAL(WAIT(c, f.service.n_requests == (count))); \
    } while (0)

/* Turn the loop until `test` holds or time is up; the outcome. */
#define WAIT(client, test)                      \
    ({                                          \
        time_t until = time(NULL) + GIVE_UP_S;  \
        while (!(test) && time(NULL) < until) { \
            front_turn();                       \
            if (client)                         \
                client_read(client);            \
        }                                       \
        (test) ? true : false;                  \
    })

#endif
