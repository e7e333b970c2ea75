"""Services that only Meta has: what would be uploaded is printed instead."""
import logging
import os


def create_paste(text: str) -> None:
    """There is no paste service: the text is printed."""
    logging.warning('There is no paste service here; the answer is printed.')
    print(text)


def get_jobname() -> str:
    """The job's name, if the environment has one."""
    return os.environ.get('JOB_NAME', '')


def get_upload_folder(jobname: str) -> str:
    """The place for a job's reports."""
    return jobname


def get_upload_file_name(snapshot: str) -> str:
    """The name of a report on a snapshot."""
    return os.path.splitext(os.path.basename(snapshot))[0]


async def upload_report(data: str, upload_folder: str = '', upload_name: str = '') -> None:
    """There is nowhere to upload to."""
    del data, upload_folder
    logging.warning('There is nowhere to upload %s to; the answer stays here.', upload_name)
