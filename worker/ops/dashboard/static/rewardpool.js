// For people: 5 s, 3 min, 2 h, 4 days.
var duration = function (seconds) {
    'use strict';
    var steps = [[86400 * 2, 86400, ' days'], [7200, 3600, ' h'], [120, 60, ' min']];
    for (var i = 0; i < steps.length; i++) {
        if (seconds >= steps[i][0]) {
            return Math.floor(seconds / steps[i][1]) + steps[i][2];
        }
    }
    return seconds + ' s';
};

// Say so when the server refuses or does not answer: rq-dashboard's scripts would go on "loading".
(function () {
    'use strict';
    var banner = document.getElementById('fault');
    var heldUntil = 0; // what a button came to is not wiped off by the next refresh

    function show(message) {
        banner.textContent = message;
        banner.hidden = !message;
    }

    function ours(settings) {
        return settings.type === 'POST' || settings.url.indexOf('/data/') >= 0;
    }

    $(document).ajaxError(function (event, reply, settings) {
        if (ours(settings)) {
            var said = reply.responseJSON && reply.responseJSON.error;
            heldUntil = settings.type === 'POST' ? Date.now() + 15000 : heldUntil;
            show(said || 'The dashboard does not answer (' + (reply.status || 'no connection') + ').');
        }
    });
    $(document).ajaxSuccess(function (event, reply, settings) {
        if (ours(settings) && (settings.type === 'POST' || Date.now() > heldUntil)) {
            heldUntil = 0;
            show('');
        }
    });
})();
