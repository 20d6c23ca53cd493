// Say so when the server refuses or does not answer: rq-dashboard's scripts would go on "loading".
(function () {
    'use strict';
    var banner = document.getElementById('fault');

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
            show(said || 'The dashboard does not answer (' + (reply.status || 'no connection') + ').');
        }
    });
    $(document).ajaxSuccess(function (event, reply, settings) {
        if (ours(settings)) {
            show('');
        }
    });
})();
