(function ($) {
    'use strict';
    // The server writes the page, escaped; this only puts its newer text in place of the old.
    function refresh() {
        if (!AUTOREFRESH_FLAG) {
            setTimeout(refresh, POLL_INTERVAL);
            return;
        }
        fetch(window.location.pathname, {cache: 'no-store', credentials: 'same-origin'})
            .then(function (reply) {
                if (!reply.ok) { throw new Error(reply.status); }
                return reply.text();
            })
            .then(function (page) {
                var fresh = new DOMParser().parseFromString(page, 'text/html').getElementById('limits');
                document.getElementById('limits').replaceWith(document.importNode(fresh, true));
                document.getElementById('fault').hidden = true;
            })
            .catch(function () {
                var banner = document.getElementById('fault');
                banner.textContent = 'The dashboard does not answer; what is shown is old.';
                banner.hidden = false;
            })
            .finally(function () { setTimeout(refresh, POLL_INTERVAL); });
    }
    setTimeout(refresh, POLL_INTERVAL);
})($);
