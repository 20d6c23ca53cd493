(function ($) {
    'use strict';
    var template = _.template($('script[name=job-info]').html());
    var job_id = {{ id|tojson }};
    var $data = $('#job-data');

    function when(stamp) {
        return stamp === null ? '–' : toRelative(Date.create(stamp)) + ' / ' + toShort(Date.create(stamp));
    }

    function load(done) {
        api.getJob(job_id, function (job, err) {
            if (!err) {
                $.each(['created_at', 'enqueued_at', 'started_at', 'ended_at'], function (i, name) {
                    job[name] = when(job[name]);
                });
                $('#requeue-job-btn').prop('hidden', ['failed', 'stopped'].indexOf(job.status) < 0);
                $data[0].innerHTML = template({d: job});
            }
            done();
        });
    }

    function loop() {
        if (!AUTOREFRESH_FLAG) {
            setTimeout(loop, POLL_INTERVAL);
            return;
        }
        load(function () { setTimeout(loop, POLL_INTERVAL); });
    }

    $(document).ready(loop);

    $('#delete-job-btn').click(function () {
        modalConfirm('delete job', function () {
            $.post(url_for('delete_job', job_id), {}, function () {
                $(location).attr('href', url_for('queues_view'));
            });
        });
        return false;
    });

    $('#requeue-job-btn').click(function () {
        $.post(url_for('requeue_job', job_id), {}, function () { load($.noop); });
        return false;
    });
})($);
