/*
 * Tickets: two gateways ask two conductors, send to the engines that these
 * name, and report. A conductor has room for one ticket, so an ended one makes
 * room for the next. Names are those of conductor/service/ticket.
 *
 * A report may be lost, come twice, in another order, and at the conductor that
 * did not give the ticket. A gateway may forget its ticket, and the answer with
 * a ticket may be lost. A conductor may die, and an engine be lost.
 */
#ifndef FAULTS
#define FAULTS 1
#endif
#define TICKETS 2 /* of each conductor, one after the other */
#define NONE 0
#ifndef ASKS
#define ASKS 2 /* by each gateway */
#endif
#define ID(i, n) (TICKETS * (i) + (n)) /* attempt and nonce; n from 1 on */
#define OWNER(id) (((id) - 1) / TICKETS)

mtype = { FIRST_TOKEN, DONE, GATEWAY_FAILED };
mtype:state = { FREE, SCHEDULED, DECODING };

/* Reports on their way to each conductor: read in any order. */
chan reports[2] = [4] of { mtype, byte };

/* The only slot of each conductor. */
mtype:state state[2];
byte open[2], given[2], engine[2];
byte n_tickets[4];      /* of conductor i on engine e, at 2 * i + e */
byte redeemed[5];       /* times that a ticket ended, by its id */
byte gateway[2];        /* the ticket that each gateway carries out */
bool began[2];          /* it has reported the first token */
byte asks[2] = ASKS, faults = FAULTS;

/* request_end(), ticket_free() */
inline end_ticket(i)
{
    redeemed[open[i]]++;
    assert(redeemed[open[i]] == 1); /* P: a ticket ends once */
    assert(n_tickets[2 * i + engine[i]] > 0);
    n_tickets[2 * i + engine[i]]--;
#ifndef ENDED_TICKETS_ARE_FOUND
    state[i] = FREE; open[i] = NONE; engine[i] = 0
#else
    state[i] = SCHEDULED
#endif
}

/* models_report_ticket() */
inline on_report(i, type, id)
{
    if
#ifndef TICKETS_GO_BY_SLOT
    :: open[i] == id && id != NONE ->
#else
    :: open[i] != NONE ->
#endif
        assert(open[i] == id); /* P: a report counts for its own ticket */
        if
        :: type == FIRST_TOKEN -> state[i] = DECODING
        :: type == DONE || type == GATEWAY_FAILED -> end_ticket(i)
        fi
    :: else /* -ENOENT */
    fi
}

proctype conductor(byte i)
{
    mtype type;
    byte id;

end:
    do
    :: atomic { reports[i]??type, id ->
         on_report(i, type, id); type = 0; id = 0 }
#ifndef TICKETS_STAY
    :: atomic { open[i] != NONE -> end_ticket(i) } /* tickets_tick() */
#endif
    od
}

/* service_ticket_take(): the answer comes, or is lost. */
inline take(i, g)
{
    given[i]++;
    assert(open[i] == NONE);
    open[i] = ID(i, given[i]);
    state[i] = SCHEDULED;
    if
    :: engine[i] = 0
    :: engine[i] = 1
    fi;
    n_tickets[2 * i + engine[i]]++;
    assert(n_tickets[2 * i + engine[i]] == 1);
    if
    :: gateway[g] = open[i]; began[g] = false
    :: faults > 0 -> faults--
    fi
}

/* A balancer takes a report to any conductor. */
inline send(type, id)
{
    if
    :: nfull(reports[0]) -> reports[0]!type(id)
    :: nfull(reports[1]) -> reports[1]!type(id)
    :: faults > 0 -> faults-- /* lost */
    :: faults > 0 && nfull(reports[0]) -> faults--; /* comes twice */
        reports[0]!type(id);
        if
        :: nfull(reports[0]) -> reports[0]!type(id)
        :: nfull(reports[1]) -> reports[1]!type(id)
        fi
    fi
}

proctype gateways(byte g)
{
end:
    do
    :: atomic { gateway[g] == NONE && asks[g] > 0 && open[0] == NONE &&
         given[0] < TICKETS -> asks[g]--; take(0, g) }
    :: atomic { gateway[g] == NONE && asks[g] > 0 && open[1] == NONE &&
         given[1] < TICKETS -> asks[g]--; take(1, g) }
    :: atomic { gateway[g] != NONE && !began[g] ->
         began[g] = true; send(FIRST_TOKEN, gateway[g]) }
    :: atomic { gateway[g] != NONE ->
         if
         :: send(DONE, gateway[g])
         :: send(GATEWAY_FAILED, gateway[g])
         fi;
         gateway[g] = NONE }
    :: atomic { gateway[g] != NONE && faults > 0 -> /* the gateway dies */
         faults--; gateway[g] = NONE }
    od
}

proctype trouble()
{
end:
    do
    :: atomic { faults > 0 && (open[0] != NONE || open[1] != NONE) ->
         faults--;
         if
         :: open[0] != NONE -> end_ticket(0) /* its engine is lost */
         :: open[1] != NONE -> end_ticket(1)
         :: open[0] != NONE -> /* the conductor dies, and starts again */
             n_tickets[engine[0]]--; open[0] = NONE; state[0] = FREE;
             engine[0] = 0
         :: open[1] != NONE ->
             n_tickets[2 + engine[1]]--; open[1] = NONE; state[1] = FREE;
             engine[1] = 0
         fi }
    od
}

/* P: once quiet no ticket is open, and none counts at an engine. */
proctype quiet()
{
    timeout ->
    assert(open[0] == NONE && open[1] == NONE);
    assert(n_tickets[0] + n_tickets[1] + n_tickets[2] + n_tickets[3] == 0)
}

init {
    atomic {
        state[0] = FREE; state[1] = FREE;
        run conductor(0); run conductor(1);
        run gateways(0); run gateways(1); run trouble(); run quiet()
    }
}
