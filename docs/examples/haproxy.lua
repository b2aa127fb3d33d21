-- Asks Conductor where a request is to go, and reports its end.
local conductor = "http://127.0.0.1:8080"
local ended = {} -- tickets that are to be reported

core.register_action("schedule", {"http-req"}, function(txn)
    local headers = txn.http:req_get_headers()
    headers["content-length"], headers["host"], headers["connection"] = nil
    headers["x-conductor-reports"] = nil -- not its client's to say
    local got = core.httpclient():post{
        url = conductor .. "/v1/schedule", headers = headers,
        body = txn.sf:req_body(), timeout = 60000}
    if got.status ~= 200 then
        local reply = txn:reply{status = got.status > 0 and got.status or 502,
                                body = got.body}
        for _, name in ipairs{"content-type", "retry-after"} do
            for _, value in pairs(got.headers and got.headers[name] or {}) do
                reply:add_header(name, value)
            end
        end
        txn:done(reply)
        return
    end
    local to = got.headers["x-gateway-destination-endpoint"][0]
    txn:set_var("txn.engine", to)
    txn:set_var("txn.host", to:match("^%[?(.-)%]?:%d+$"))
    txn:set_var("txn.port", tonumber(to:match("%d+$")))
    txn:set_var("txn.ticket", got.headers["x-conductor-ticket"][0])
end, 0)

-- The end of a stream, also of one whose client has left. Nothing may wait in
-- a filter, so a task of its own reports.
local report = {id = "report", flags = filter.FLT_CFG_FL_HTX}
report.__index = report
function report:new() return setmetatable({}, report) end
function report:end_analyze(txn, channel)
    local ticket = txn:get_var("txn.ticket")
    if ticket and channel:is_resp() then
        ended[#ended + 1] = ticket
    end
end
core.register_filter("report", report, function(self) return self end)

core.register_task(function()
    while true do
        local tickets = ended
        ended = {}
        for _, ticket in ipairs(tickets) do
            core.httpclient():post{
                url = conductor .. "/v1/schedule/done",
                headers = {["x-conductor-ticket"] = {ticket}}}
        end
        core.msleep(10)
    end
end)
