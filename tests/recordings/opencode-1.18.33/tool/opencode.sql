CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1ded9470e001Ko7m9KEj1VxsOh','ses_e2126b94effe4m6Ta3QPKNz259',1794740143886,1794740146413,'{"role":"user","time":{"created":1794740143886},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1ded94d1f001i6OUQWDAA39T6J','ses_e2126b94effe4m6Ta3QPKNz259',1794740145439,1794740146377,'{"parentID":"msg_1ded9470e001Ko7m9KEj1VxsOh","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740145439,"completed":1794740146377},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1ded950cc001YL5gE7GHMnBp3X','ses_e2126b94effe4m6Ta3QPKNz259',1794740146380,1794740146497,'{"parentID":"msg_1ded9470e001Ko7m9KEj1VxsOh","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740146380,"completed":1794740146496},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1ded9472b001MLI4MLVGwNn3BD','msg_1ded9470e001Ko7m9KEj1VxsOh','ses_e2126b94effe4m6Ta3QPKNz259',1794740143918,1794740143920,'{"type":"text","text":"Do it."}');
INSERT INTO "part" VALUES('prt_1ded94fe5001UDCgABbRQEUhaS','msg_1ded94d1f001i6OUQWDAA39T6J','ses_e2126b94effe4m6Ta3QPKNz259',1794740146149,1794740146153,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded94ff0001Oy9MChBV1Oxxrz','msg_1ded94d1f001i6OUQWDAA39T6J','ses_e2126b94effe4m6Ta3QPKNz259',1794740146160,1794740146236,'{"type":"text","text":"I write.","time":{"start":1794740146160,"end":1794740146232}}');
INSERT INTO "part" VALUES('prt_1ded94ff9001THjcsWf4sNEbB2','msg_1ded94d1f001i6OUQWDAA39T6J','ses_e2126b94effe4m6Ta3QPKNz259',1794740146170,1794740146366,'{"type":"tool","tool":"bash","callID":"call_main_00_00","state":{"status":"completed","input":{"command":"echo hi > a; cat a"},"output":"hi\n","metadata":{"output":"hi\n","exit":0,"truncated":false},"title":"echo hi > a; cat a","time":{"start":1794740146199,"end":1794740146365}}}');
INSERT INTO "part" VALUES('prt_1ded950c2001Anoz4dBxfNMG0i','msg_1ded94d1f001i6OUQWDAA39T6J','ses_e2126b94effe4m6Ta3QPKNz259',1794740146370,1794740146371,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
INSERT INTO "part" VALUES('prt_1ded95133001cw64exjShn8PeB','msg_1ded950cc001YL5gE7GHMnBp3X','ses_e2126b94effe4m6Ta3QPKNz259',1794740146483,1794740146485,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded95137001hwwtYLmW25IKhv','msg_1ded950cc001YL5gE7GHMnBp3X','ses_e2126b94effe4m6Ta3QPKNz259',1794740146487,1794740146490,'{"type":"text","text":"Done.","time":{"start":1794740146487,"end":1794740146490}}');
INSERT INTO "part" VALUES('prt_1ded9513c001QscApltJNs4jnd','msg_1ded950cc001YL5gE7GHMnBp3X','ses_e2126b94effe4m6Ta3QPKNz259',1794740146492,1794740146492,'{"reason":"stop","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
CREATE TABLE `session` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `workspace_id` text,
          `parent_id` text,
          `slug` text NOT NULL,
          `directory` text NOT NULL,
          `path` text,
          `title` text NOT NULL,
          `version` text NOT NULL,
          `share_url` text,
          `summary_additions` integer,
          `summary_deletions` integer,
          `summary_files` integer,
          `summary_diffs` text,
          `metadata` text,
          `cost` real DEFAULT 0 NOT NULL,
          `tokens_input` integer DEFAULT 0 NOT NULL,
          `tokens_output` integer DEFAULT 0 NOT NULL,
          `tokens_reasoning` integer DEFAULT 0 NOT NULL,
          `tokens_cache_read` integer DEFAULT 0 NOT NULL,
          `tokens_cache_write` integer DEFAULT 0 NOT NULL,
          `revert` text,
          `permission` text,
          `agent` text,
          `model` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_compacting` integer,
          `time_archived` integer,
          CONSTRAINT `fk_session_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "session" VALUES('ses_e2126b94effe4m6Ta3QPKNz259','global',NULL,NULL,'clever-canyon','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0012,200,40,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740143793,1794740146518,NULL,NULL);
