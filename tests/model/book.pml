/*
 * The bookings that two conductors publish to each other: leases in Redis,
 * batches in a stream, questions for the full state. Names are those of
 * conductor/cluster.
 *
 * Each conductor books an instance and gives it back; whether the other one
 * knows that is `has` of its `foreign`. A conductor's batches reach the other
 * one in order. Faults: a batch is trimmed, refused or told without an answer;
 * Redis is emptied, maybe with a clock that is behind; a lease ends in Redis,
 * or at the other conductor by its clock; a reader begins anew at the stream's
 * end; a conductor dies. After them `quiet` renews the leases ROUNDS times.
 */
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef WORK
#define WORK 2 /* changes of bookings by each conductor */
#endif
#define RENEWALS 1 /* of each conductor, before the last fault is over */
#define ROUNDS 4
#define OTHER(i) (1 - (i))

mtype = { RESET, CHANGED, ASK, BEAT };

/* Redis: the registry's tokens, 0 = no lease; the last token; the stream as
 * what each conductor still has to hear: token, number, kind, booked. */
byte lease[2], last_token;
chan stream[2] = [16] of { byte, byte, mtype, bool };

/* struct cluster and its pool. */
bool alive[2], booked[2], all_due[2], ask_due[2], asked[2], renew_due[2];
byte token[2], number[2], beaten[2], member[2];
byte answer[2], answer_member[2]; /* of the renewal that is on its way */
bool answered[2];

/* struct owner: the other conductor, as this one knows it. */
bool known[2], missing[2], doubted[2], has[2];
byte owner_token[2], next[2];

byte faults = FAULTS, work[2], renewals[2], round;
bool behind; /* Redis's clock is behind the tokens that it gave */
byte highest; /* token, ever: the clock when it is right */

/* tell_flush(): the batch goes to the other conductor, or is refused. */
inline put(i, kind)
{
    if
    :: faults > 0 -> faults--; /* refused, or taken without an answer */
        number[i]++;
        if
        :: true
        :: alive[OTHER(i)] ->
            assert(nfull(stream[OTHER(i)]));
            stream[OTHER(i)]!token[i], number[i] - 1, kind, booked[i]
        fi;
        all_due[i] = true; ask_due[i] = true /* on_added() */
    :: true ->
        if
        :: alive[OTHER(i)] ->
            /* P: batches are bounded */
            assert(nfull(stream[OTHER(i)]));
            stream[OTHER(i)]!token[i], number[i], kind, booked[i]
        :: else
        fi;
        number[i]++
    fi;
    assert(number[i] < 60) /* P: asking ends */
}

/* foreign_has_all() */
#define HAS_ALL(i) (known[i] && !missing[i] && !doubted[i] && \
                    owner_token[i] >= member[i])

inline tell_due(i)
{
    if
    :: token[i] != 0 && (all_due[i] || asked[i]) ->
        all_due[i] = false; asked[i] = false;
        put(i, RESET)
    :: else
    fi;
    if
    :: token[i] != 0 && ask_due[i] && !all_due[i] ->
        ask_due[i] = false;
        if
        :: member[i] != 0 && !HAS_ALL(i) -> put(i, ASK)
        :: else
        fi
    :: else
    fi
}

inline tell_beat(i)
{
#ifndef NO_BEAT
    if
    :: token[i] != 0 && !all_due[i] && number[i] == beaten[i] -> put(i, BEAT)
    :: else
    fi;
#endif
    beaten[i] = number[i]
}

/* registry_script: renews the lease, gives a token if there was none. */
inline renew(i)
{
    if
    :: lease[i] == 0 || lease[i] < token[i] ->
        lease[i] = (last_token > token[i] -> last_token : token[i]) + 1;
        if
        :: !behind && lease[i] <= highest -> lease[i] = highest + 1
        :: else
        fi;
        last_token = lease[i]
    :: else
    fi;
    if
    :: lease[i] > highest -> highest = lease[i]
    :: else
    fi;
    answer[i] = lease[i];
    answer_member[i] = lease[OTHER(i)];
    answered[i] = true
}

inline on_renewed(i)
{
    answered[i] = false;
    if
    :: answer[i] != token[i] -> /* take_token() */
        token[i] = answer[i]; all_due[i] = true; ask_due[i] = true
    :: else
    fi;
    member[i] = answer_member[i];
#ifndef ASKED_ONCE
    ask_due[i] = true;
#endif
    tell_due(i);
    tell_beat(i);
    answer[i] = 0; answer_member[i] = 0
}

inline forget_owner(i)
{
    known[i] = false; missing[i] = false; doubted[i] = false; has[i] = false;
    owner_token[i] = 0; next[i] = 0
}

/* owner_take(), take_event() */
inline hear(i, t, n, kind, books)
{
    if
    :: !known[i] ->
        known[i] = true; owner_token[i] = t; next[i] = n;
        missing[i] = n > 0; ask_due[i] = ask_due[i] || n > 0
    :: else
    fi;
    if
    :: t >= owner_token[i] ->
        if
        :: t > owner_token[i] ->
            has[i] = false; owner_token[i] = t; missing[i] = true;
            ask_due[i] = true
#ifndef GAPS_ARE_IGNORED
        :: t == owner_token[i] && n != next[i] ->
            missing[i] = true; ask_due[i] = true
        :: t == owner_token[i] && n == next[i]
#else
        :: t == owner_token[i]
#endif
        fi;
        next[i] = n + 1;
        if
        :: kind == RESET ->
            missing[i] = false; doubted[i] = false; has[i] = books;
#ifdef ANSWERS_ARE_QUESTIONS
            asked[i] = true
#endif
        :: kind == CHANGED && !missing[i] -> has[i] = books
        :: kind == CHANGED && missing[i]
        :: kind == ASK -> asked[i] = true
        :: kind == BEAT
        fi
    :: else /* fenced */
    fi;
    tell_due(i)
}

proctype conductor(byte i)
{
    byte t, n;
    mtype kind;
    bool books;

end:
    do
    :: atomic { alive[i] && !answered[i] &&
         (renewals[i] > 0 || renew_due[i]) ->
         if
         :: renew_due[i] -> renew_due[i] = false
         :: else -> renewals[i]--
         fi;
         renew(i) }
    :: atomic { alive[i] && answered[i] -> on_renewed(i) }
    :: atomic { stream[i]?t, n, kind, books ->
         hear(i, t, n, kind, books); t = 0; n = 0; kind = 0; books = 0 }
    :: atomic { alive[i] && work[i] > 0 && token[i] != 0 ->
         work[i]--;
         booked[i] = !booked[i]; /* cluster_decided(), cluster_ended() */
         if
         :: all_due[i]
         :: !all_due[i] -> put(i, CHANGED)
         fi }
    od
}

inline empty_stream(i)
{
    do
    :: nempty(stream[i]) -> stream[i]?_, _, _, _
    :: empty(stream[i]) -> break
    od
}

inline kill(i)
{
    alive[i] = false; booked[i] = false; work[i] = 0;
    answered[i] = false; answer[i] = 0; answer_member[i] = 0;
    all_due[i] = false; ask_due[i] = false; asked[i] = false;
    token[i] = 0; number[i] = 0; beaten[i] = 0; member[i] = 0;
    renewals[i] = 0;
    forget_owner(i);
    empty_stream(i)
}

inline flush_redis()
{
    lease[0] = 0; lease[1] = 0; last_token = 0;
    empty_stream(0); empty_stream(1);
    if
    :: behind = true
    :: true
    fi
}

/* hear_anew(), on_place() */
inline place_anew(i)
{
    empty_stream(i);
    asked[i] = true; ask_due[i] = true;
    tell_due(i)
}

proctype trouble()
{
end:
    do
    :: atomic { faults > 0 && round == 0 ->
         faults--;
         if
         :: nempty(stream[0]) -> stream[0]?_, _, _, _
         :: nempty(stream[1]) -> stream[1]?_, _, _, _
         :: alive[0] -> place_anew(0)
         :: alive[1] -> place_anew(1)
         :: alive[0] -> doubted[0] = known[0]; ask_due[0] = true; tell_due(0)
         :: lease[0] != 0 -> lease[0] = 0
         :: lease[1] != 0 -> lease[1] = 0
         :: known[0] -> forget_owner(0)
         :: known[1] -> forget_owner(1)
         :: answered[0] -> answered[0] = false /* the answer is lost */
         :: answered[1] -> answered[1] = false
         :: alive[0] && alive[1] -> kill(0)
         :: alive[0] && alive[1] -> kill(1)
         :: flush_redis()
         fi }
    od
}

/* A dead conductor's lease ends, in Redis and at the other conductor. */
proctype clock()
{
end:
    do
    :: atomic { !alive[0] && lease[0] != 0 -> lease[0] = 0 }
    :: atomic { !alive[1] && lease[1] != 0 -> lease[1] = 0 }
#ifndef OWNERS_STAY
    :: atomic { !alive[0] && lease[0] == 0 && known[1] && empty(stream[1]) ->
         forget_owner(1) } /* foreign_expire() */
    :: atomic { !alive[1] && lease[1] == 0 && known[0] && empty(stream[0]) ->
         forget_owner(0) }
#endif
    od
}

/* P: ROUNDS renewals after the last fault, each live conductor's booking is in
 * the other's pool, and nothing else is. */
inline check(i)
{
    if
    :: alive[i] && alive[OTHER(i)] ->
        assert(has[i] == booked[OTHER(i)]);
        assert(HAS_ALL(i) && lease[i] == token[i])
    :: alive[i] && !alive[OTHER(i)] ->
        assert(!has[i] && !known[i] && lease[i] == token[i])
    :: !alive[i]
    fi
}

proctype quiet()
{
    do
    :: atomic { timeout && round < ROUNDS ->
         round++; faults = 0;
         renew_due[0] = alive[0]; renew_due[1] = alive[1] }
    :: atomic { timeout && round == ROUNDS -> check(0); check(1); break }
    od
}

init {
    atomic {
        byte k;
        for (k : 0 .. 1) {
            alive[k] = true; all_due[k] = true;
            work[k] = WORK; renewals[k] = RENEWALS
        }
        k = 0;
        run conductor(0); run conductor(1);
        run trouble(); run clock(); run quiet()
    }
}
